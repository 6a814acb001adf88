// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostream>
#include <stdexcept>

#include "lib/report/atomic_file.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::report {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;
using test::text_of;

TEST(WriteAtomically, MakesFoldersAndReplacesTheFile) {
  const TempFolder folder;
  const fs::path file = folder / "a/b/file.json";
  write_atomically(file, "first and longer");
  write_atomically(file, "second");
  EXPECT_EQ(text_of(file), "second");
  EXPECT_FALSE(fs::exists(file.string() + ".part"));
}

TEST(WriteAtomically, LeavesTheOldFileWhenTheWriterFails) {
  const TempFolder folder;
  const fs::path file = folder / "file.json";
  write_atomically(file, "old");
  EXPECT_THROW(write_atomically(file,
                                [](std::ostream& out) {
                                  out << "half of the n";
                                  throw std::runtime_error("stop");
                                }),
               std::runtime_error);
  EXPECT_EQ(text_of(file), "old");
  EXPECT_FALSE(fs::exists(file.string() + ".part"));
}

TEST(WriteAtomically, NamesTheFileThatCannotBeMade) {
  const TempFolder folder;
  write_atomically(folder / "occupied", "a file where a folder is wanted");
  try {
    write_atomically(folder / "occupied/file.json", "text");
    FAIL() << "wrote below a file";
  } catch (const SystemError& error) {
    EXPECT_NE(std::string(error.what()).find("occupied"), std::string::npos) << error.what();
  }
}

TEST(WriteAtomically, FailsOnAFullDisk) {
  // Linux's device that is always full; reached through a link so that the .part name is the link.
  const TempFolder folder;
  fs::create_symlink("/dev/full", folder / "file.json.part");
  EXPECT_THROW(write_atomically(folder / "file.json", "text"), SystemError);
  EXPECT_FALSE(fs::exists(folder / "file.json"));
}

}  // namespace
}  // namespace pecia::report
