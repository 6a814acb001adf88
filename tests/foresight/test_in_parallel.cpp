// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

#include "lib/foresight/in_parallel.hpp"
#include "lib/foresight/passes_of_replica.hpp"
#include "tests/foresight/small_job.hpp"

namespace pecia::foresight {
namespace {

TEST(InParallel, CallsEachIndexOnce) {
  for (const int threads : {0, 1, 3, 8})
    for (const size_t count : {0, 1, 5, 100}) {
      std::vector<std::atomic<int>> calls(count);
      in_parallel(threads, count, [&](size_t i) { ++calls[i]; });
      for (const std::atomic<int>& each : calls) EXPECT_EQ(each, 1);
    }
}

TEST(InParallel, ThrowsTheFirstFailureOnceAllHaveEnded) {
  std::atomic<int> calls = 0;
  const auto fail_some = [&](size_t i) {
    ++calls;
    if (i == 3 || i == 7) throw std::runtime_error(std::to_string(i));
  };
  try {
    in_parallel(4, 20, fail_some);
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "3");
  }
  EXPECT_EQ(calls, 20);
}

/// Threads that ask for the same and for other passes get what one thread gets.
TEST(InParallel, PassesAreTheSameFromManyThreads) {
  const SmallJob small;
  const auto seconds = [&](int threads) {
    Passes passes(small.setting());
    constexpr size_t count = 48;
    std::vector<double> found(count);
    in_parallel(threads, count, [&](size_t i) {
      const PassesOfReplica of(passes, ring_of(1 << (i % 3), 256), HowFar::played);
      const auto tokens = static_cast<int64_t>(64 * (1 + i / 3 % 4));
      found[i] = of.figures(of.prompts(1 << (i % 3), 1, tokens, 0)).seconds;
    });
    EXPECT_EQ(passes.num_played(), 12);
    return found;
  };
  EXPECT_EQ(seconds(8), seconds(1));
}

}  // namespace
}  // namespace pecia::foresight
