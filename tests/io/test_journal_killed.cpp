// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include "lib/files/results/journal_gatherer.hpp"
#include "tests/io/results_samples.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::io {
namespace {

constexpr int64_t num_turns = 600;
constexpr int32_t replicas = 4;

/// Appends the replica's turns that the results lack, in groups of up to three, and reports each to
/// the pipe's end.
void append_turns(const std::filesystem::path& folder, int32_t replica, int report) {
  const ResultsFile results(folder / "r.h5");
  JournalWriter writer(folder / "journal", replica, results, 2000);
  std::vector<int64_t> left;
  for (int64_t turn = replica; turn < num_turns; turn += replicas)
    if (results.state(turn) == TurnState::open) left.push_back(turn);
  for (size_t begin = 0; begin < left.size();) {
    const size_t end = std::min(left.size(), begin + 1 + begin % 3);
    std::vector<TurnResult> rows;
    for (size_t i = begin; i < end; ++i)
      rows.push_back(
          test::sample_result(results.layout(), left[i], results.layout().turns[left[i]].slots));
    std::vector<TurnUpdate> updates;
    for (size_t i = begin; i < end; ++i)
      updates.push_back({left[i], rows[i - begin], TurnState::done});
    writer.append(updates);
    for (; begin < end; ++begin)
      if (::write(report, &left[begin], sizeof(int64_t)) != sizeof(int64_t)) return;
  }
}

[[noreturn]] void gather_for_ever(const std::filesystem::path& folder, int report) {
  ::close(report);
  for (JournalGatherer gatherer(folder / "journal", folder / "r.h5");;) gatherer.gather();
}

/// A process that does the work, closes `report` and waits to be killed.
pid_t forked(int report, const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  work();
  ::close(report);
  ::pause();
  ::_exit(0);
}

/// Four writers and one that gathers, all killed at once at a random moment, over and over.
TEST(KilledRun, LosesNoRowThatAReplicaCalledDoneAndMeetsNoneTwice) {
  const test::TempFolder folder;
  ResultsFile::create(folder / "r.h5", test::sample_layout(num_turns, 2, 1));
  std::random_device entropy;
  const uint32_t seed = entropy();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::vector<int> reported(num_turns);
  int64_t torn = 0;
  for (int round = 0; round < 25; ++round) {
    std::filesystem::create_directory(folder / "journal");
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    std::vector<pid_t> children;
    for (int32_t replica = 0; replica < replicas; ++replica)
      children.push_back(forked(ends[1], [&] { append_turns(folder.path(), replica, ends[1]); }));
    children.push_back(forked(ends[1], [&] { gather_for_ever(folder.path(), ends[1]); }));
    ::close(ends[1]);
    int64_t turn = 0;
    const auto before_kill = std::uniform_int_distribution<int>(0, 40)(random);
    const auto report = [&] {
      if (::read(ends[0], &turn, sizeof(turn)) != sizeof(turn)) return false;
      ++reported.at(turn);
      return true;
    };
    for (int rows = 0; rows < before_kill && report(); ++rows) {
    }
    std::this_thread::sleep_for(
        std::chrono::microseconds(std::uniform_int_distribution<int>(0, 2000)(random)));
    for (const pid_t child : children) ::kill(child, SIGKILL);
    for (const pid_t child : children) {
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "it ended by itself";
    }
    while (report()) {
    }
    ::close(ends[0]);

    torn += std::ssize(JournalGatherer(folder / "journal", folder / "r.h5").finish());
    ASSERT_FALSE(std::filesystem::exists(folder / "journal"));
    const ResultsFile results(folder / "r.h5");
    for (int64_t of = 0; of < num_turns; ++of) {
      ASSERT_LE(reported[of], 1) << "turn " << of << " was open again";
      ASSERT_TRUE(reported[of] == 0 || results.state(of) == TurnState::done) << "turn " << of;
      if (results.state(of) == TurnState::open) continue;
      ASSERT_TRUE(results.read(of) ==
                  test::sample_result(results.layout(), of, results.layout().turns[of].slots));
    }
  }
  EXPECT_GT(std::count(reported.begin(), reported.end(), 1), 0);
  RecordProperty("torn_journals", static_cast<int>(torn));
}

}  // namespace
}  // namespace pecia::io
