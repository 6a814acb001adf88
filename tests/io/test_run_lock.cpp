// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lib/base/core/error.hpp"
#include "lib/files/disk/run_lock.hpp"
#include "tests/io/expect_error.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::io {
namespace {

using Method = RunLock::Method;

nlohmann::json holder_in(const std::filesystem::path& path) {
  return nlohmann::json::parse(std::ifstream(path));
}

/// Forks a process that takes the lock and waits for its death; returns when it has it.
pid_t fork_holder(const std::filesystem::path& folder, Method method) {
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("pipe");
  const pid_t child = ::fork();
  if (child == 0) {
    const RunLock lock(folder, method);
    if (::write(ends[1], "x", 1) == 1)
      for (;;) ::pause();
    ::_exit(1);
  }
  char byte;
  EXPECT_EQ(::read(ends[0], &byte, 1), 1);
  ::close(ends[0]);
  ::close(ends[1]);
  return child;
}

void kill_and_reap(pid_t child) {
  ::kill(child, SIGKILL);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
}

class EveryMethod : public testing::TestWithParam<Method> {};

TEST_P(EveryMethod, NamesItsHolderAndIsReleased) {
  const test::TempFolder folder;
  {
    const RunLock lock(folder.path(), GetParam());
    EXPECT_EQ(lock.path(), folder / ".lock");
    const auto holder = holder_in(lock.path());
    EXPECT_EQ(holder.at("pid"), ::getpid());
    EXPECT_NE(holder.at("command").get<std::string>().find("test_io"), std::string::npos);
    const std::string started = holder.at("started");
    EXPECT_EQ(started.size(), std::string("2026-11-21T09:46:07Z").size()) << started;
    test::expect_error<InputError>(
        [&] { RunLock(folder.path(), GetParam()); },
        {(folder / ".lock").string(), "process " + std::to_string(::getpid()),
         holder.at("host").get<std::string>(), started, "test_io"});
    EXPECT_EQ(holder_in(lock.path()), holder) << "a refused run changes nothing";
  }
  EXPECT_FALSE(std::filesystem::exists(folder / ".lock"));
  EXPECT_NO_THROW(RunLock(folder.path(), GetParam()));
}

TEST_P(EveryMethod, IsHeldByOtherProcessesUntilTheyDie) {
  const test::TempFolder folder;
  const pid_t child = fork_holder(folder.path(), GetParam());
  test::expect_error<InputError>([&] { RunLock(folder.path(), GetParam()); },
                                 {"process " + std::to_string(child)});
  kill_and_reap(child);
  ASSERT_TRUE(std::filesystem::exists(folder / ".lock")) << "the dead clean nothing up";
  const RunLock lock(folder.path(), GetParam());
  EXPECT_EQ(holder_in(lock.path()).at("pid"), ::getpid());
}

INSTANTIATE_TEST_SUITE_P(OfLocking, EveryMethod,
                         testing::Values(Method::automatic, Method::by_existence));

TEST(RunLockByExistence, RespectsOtherHostsAndUnreadableFiles) {
  const test::TempFolder folder;
  nlohmann::json holder = {{"host", "another-host"},
                           {"pid", 1},
                           {"started", "2026-01-01T00:00:00Z"},
                           {"command", "pecia run a.yaml"},
                           {"process_start", "no such time"}};
  std::ofstream(folder / ".lock") << holder;
  test::expect_error<InputError>(
      [&] { RunLock(folder.path(), Method::by_existence); },
      {"another-host", "pecia run a.yaml", "2026-01-01", "remove the file"});
  std::ofstream(folder / ".lock") << "{\"host\":";
  test::expect_error<InputError>([&] { RunLock(folder.path(), Method::by_existence); },
                                 {(folder / ".lock").string(), "remove the file"});
}

TEST(RunLockByExistence, TellsANewProcessOfTheSamePid) {
  const test::TempFolder folder;
  {
    const RunLock lock(folder.path(), Method::by_existence);
    auto holder = holder_in(lock.path());
    std::filesystem::rename(lock.path(), folder / "kept");
    holder["process_start"] = "1";  // the pid lives, but was another process's then
    std::ofstream(folder / ".lock") << holder;
  }
  ASSERT_TRUE(std::filesystem::exists(folder / ".lock")) << "another's file is not removed";
  EXPECT_NO_THROW(RunLock(folder.path(), Method::by_existence));
}

TEST(RunLock, DoesNotFollowALink) {
  const test::TempFolder folder;
  folder.write("victim", "precious");
  for (const char* target : {"victim", "nowhere"}) {
    std::filesystem::remove(folder / ".lock");
    std::filesystem::create_symlink(folder / target, folder / ".lock");
    for (const Method method : {Method::automatic, Method::by_existence})
      test::expect_error<InputError>([&] { RunLock(folder.path(), method); },
                                     {(folder / ".lock").string(), "symbolic link", "remove it"});
  }
  EXPECT_EQ(test::text_of(folder / "victim"), "precious");
  EXPECT_FALSE(std::filesystem::exists(folder / "nowhere"));
}

TEST(RunLock, DoesNotWaitForAPipe) {
  const test::TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / ".lock").c_str(), 0600), 0);
  test::expect_error<InputError>([&] { RunLock(folder.path()); }, {"a pipe or device"});
  EXPECT_TRUE(run_holder(folder.path()).has_value());
}

TEST(RunLock, WorksInAFolderBehindALink) {
  const test::TempFolder folder;
  std::filesystem::create_directory(folder / "scratch");
  std::filesystem::create_directory_symlink(folder / "scratch", folder / "runs");
  const RunLock lock(folder / "runs");
  EXPECT_TRUE(std::filesystem::exists(folder / "scratch/.lock"));
}

TEST(RunLock, NeedsAFolder) {
  const test::TempFolder folder;
  test::expect_error<InputError>([&] { RunLock(folder / "missing"); },
                                 {(folder / "missing" / ".lock").string(), "No such file"});
}

}  // namespace
}  // namespace pecia::io
