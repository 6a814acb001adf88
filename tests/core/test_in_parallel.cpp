// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

#include "lib/base/core/in_parallel.hpp"

namespace pecia {
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

}  // namespace
}  // namespace pecia
