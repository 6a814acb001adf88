// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/core/error.hpp"
#include "lib/base/core/files.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;
using test::text_of;

TEST(NewFile, TakesThePlaceOfALinkAndDoesNotFollowIt) {
  const TempFolder folder;
  folder.write("victim", "precious");
  for (const char* target : {"victim", "nowhere"}) {
    fs::remove(folder / "new");
    fs::create_symlink(folder / target, folder / "new");
    const int descriptor = open_new_file(folder / "new", 0600);
    ASSERT_GE(descriptor, 0);
    EXPECT_EQ(::write(descriptor, "text", 4), 4);
    ::close(descriptor);
    EXPECT_FALSE(fs::is_symlink(folder / "new"));
    EXPECT_EQ(text_of(folder / "new"), "text");
    struct stat made;
    ASSERT_EQ(::stat((folder / "new").c_str(), &made), 0);
    EXPECT_EQ(made.st_mode & 07777, 0600u);
  }
  EXPECT_EQ(text_of(folder / "victim"), "precious");
  EXPECT_FALSE(fs::exists(folder / "nowhere"));
}

TEST(NewFile, TakesThePlaceOfAFileThatAKilledRunLeft) {
  const TempFolder folder;
  folder.write("new", "half of the");
  const int descriptor = open_new_file(folder / "new");
  ASSERT_GE(descriptor, 0);
  ::close(descriptor);
  EXPECT_EQ(fs::file_size(folder / "new"), 0u);
  fs::create_directory(folder / "folder");
  EXPECT_LT(open_new_file(folder / "folder"), 0);
}

TEST(TextOfFile, IsAbsentForAllButRegularFiles) {
  const TempFolder folder;
  folder.write("long", std::string(100'000, 'x'));
  folder.write("empty", "");
  EXPECT_EQ(text_of_file(folder / "long"), std::string(100'000, 'x'));
  EXPECT_EQ(text_of_file(folder / "empty"), "");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const char* name : {"pipe", "nowhere", "."})
    EXPECT_FALSE(text_of_file(folder / name).has_value()) << name;
  EXPECT_TRUE(text_of_file("/proc/self/stat").has_value()) << "its size is said to be 0";
}

TEST(ForeignLink, IsRefusedAndOnesOwnIsFollowed) {
  const TempFolder folder;
  fs::create_directory(folder / "real");
  fs::create_directory_symlink(folder / "real", folder / "link");
  for (const char* name : {"real", "link", "nowhere"})
    EXPECT_NO_THROW(refuse_foreign_link(folder / name)) << name;
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a link of another user";
  constexpr uid_t somebody = 12345;
  ASSERT_EQ(::lchown((folder / "link").c_str(), somebody, -1), 0);
  EXPECT_THROW(refuse_foreign_link(folder / "link"), InputError);
  ASSERT_EQ(::chown(folder.path().c_str(), somebody, -1), 0);
  EXPECT_NO_THROW(refuse_foreign_link(folder / "link")) << "it is the folder owner's";
}

}  // namespace
}  // namespace pecia
