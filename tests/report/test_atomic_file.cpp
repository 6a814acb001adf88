// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostream>
#include <stdexcept>

#include "lib/base/report/atomic_file.hpp"
#include "tests/io/file_size_limit.hpp"
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
  const TempFolder folder;
  const test::FileSizeLimit full(1000);
  EXPECT_THROW(write_atomically(folder / "file.json", std::string(100'000, 'x')), SystemError);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(WriteAtomically, ReplacesLinksAndDoesNotFollowThem) {
  const TempFolder folder;
  folder.write("victim", "precious");
  for (const char* name : {"file.json", "file.json.part"})
    fs::create_symlink(folder / "victim", folder / name);
  write_atomically(folder / "file.json", "text");
  EXPECT_EQ(text_of(folder / "victim"), "precious");
  EXPECT_EQ(text_of(folder / "file.json"), "text");
  EXPECT_FALSE(fs::is_symlink(folder / "file.json"));
}

TEST(WriteAtomically, GivesTheModeThatIsAskedFor) {
  const TempFolder folder;
  write_atomically(folder / "file.json", "text", 0600);
  EXPECT_EQ(fs::status(folder / "file.json").permissions(),
            fs::perms::owner_read | fs::perms::owner_write);
}

}  // namespace
}  // namespace pecia::report
