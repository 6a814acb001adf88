// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "lib/files/results/results.hpp"
#include "tests/io/results_samples.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::io {
namespace {

using test::sample_result;

constexpr int64_t num_turns = 400;

ResultsLayout layout_of_the_job() {
  ResultsLayout layout = test::sample_layout(num_turns, 2, 1);
  for (ResultTurn& turn : layout.turns) turn.slots += 300;
  return layout;
}

/// Finishes what is open or partial, some turns by way of a partial one, and reports each row
/// written.
[[noreturn]] void work(const std::filesystem::path& path, uint32_t seed, int report) {
  ResultsFile file(path);
  const ResultsLayout& layout = file.layout();
  std::vector<int64_t> order;
  for (int64_t t = 0; t < num_turns; ++t)
    if (file.state(t) == TurnState::open || file.state(t) == TurnState::partial) order.push_back(t);
  std::shuffle(order.begin(), order.end(), std::mt19937(seed));
  for (const int64_t t : order) {
    const bool by_way_of_partial = t % 3 == 0 && file.state(t) == TurnState::open;
    if (by_way_of_partial) file.write(t, sample_result(layout, t, 100), TurnState::partial);
    file.write(t, sample_result(layout, t, layout.turns[t].slots), TurnState::done);
    if (::write(report, "x", 1) != 1) break;
  }
  ::_exit(0);
}

/// Rows whose state is done; every row must be what its state says.
int64_t count_done_checking_all(const std::filesystem::path& path) {
  const ResultsFile file(path);
  int64_t done = 0;
  for (int64_t t = 0; t < num_turns; ++t) {
    const TurnState state = file.state(t);
    if (state == TurnState::open) continue;
    const TurnResult row = file.read(t);
    const auto count = static_cast<int64_t>(row.tokens.size());
    const TurnResult whole = sample_result(file.layout(), t, count);
    if (state == TurnState::partial) {
      EXPECT_TRUE(t % 3 == 0 && (count == 100 || count == file.layout().turns[t].slots)) << t;
      EXPECT_TRUE(row == whole) << "partial turn " << t;
    } else {
      ++done;
      EXPECT_EQ(state, TurnState::done) << t;
      EXPECT_EQ(count, file.layout().turns[t].slots) << t;
      EXPECT_TRUE(row == whole) << "turn " << t;
    }
  }
  return done;
}

/// Twenty writers of one file, one after the other, each killed within a row at a random place.
TEST(KilledWriter, LosesNoRowThatItCalledDone) {
  const test::TempFolder folder;
  const auto path = folder / "r.h5";
  ResultsFile::create(path, layout_of_the_job());
  std::random_device entropy;
  const uint32_t seed = entropy();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);

  int64_t reported = 0;
  for (uint32_t round = 0; round < 20; ++round) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t writer = ::fork();
    ASSERT_GE(writer, 0);
    if (writer == 0) {
      ::close(ends[0]);
      work(path, seed + round, ends[1]);
    }
    ::close(ends[1]);
    const auto rows = std::uniform_int_distribution<int>(0, 20)(random);
    char byte;
    int64_t reports = 0;
    while (reports < rows && ::read(ends[0], &byte, 1) == 1) ++reports;
    // Into the next row: some hundred system calls take about as long.
    const std::chrono::microseconds delay(std::uniform_int_distribution<int>(0, 500)(random));
    const auto kill_at = std::chrono::steady_clock::now() + delay;
    while (std::chrono::steady_clock::now() < kill_at) {
    }
    ::kill(writer, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(writer, &status, 0), writer);
    ASSERT_TRUE(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0);
    while (::read(ends[0], &byte, 1) == 1) ++reports;  // written before the signal arrived
    ::close(ends[0]);

    reported += reports;
    const int64_t done = count_done_checking_all(path);
    EXPECT_GE(done, reported) << "round " << round;
    EXPECT_LE(done, reported + round + 1) << "one unreported row per kill at most";
  }
  EXPECT_GT(reported, 0);
}

}  // namespace
}  // namespace pecia::io
