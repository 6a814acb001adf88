// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "lib/base/report/memory.hpp"

namespace pecia::report {
namespace {

TEST(PeakRss, GrowsWithTouchedMemoryAndNeverShrinks) {
  constexpr int64_t block_bytes = int64_t{64} << 20;
  const int64_t before = peak_rss_bytes();
  EXPECT_GT(before, 0);
  {
    // As large as all that was ever resident, so that it must raise the peak whatever was freed.
    std::vector<char> block(before + block_bytes);
    std::memset(block.data(), 1, block.size());
    EXPECT_EQ(block[block.size() / 2], 1);
    EXPECT_GE(peak_rss_bytes(), before + block_bytes);
  }
  EXPECT_GE(peak_rss_bytes(), before + block_bytes);
}

TEST(CpuSeconds, CountsAllThreadsAndNoSleep) {
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(cpu_seconds(), before + 0.2);
  std::thread([&] {
    for (int64_t tries = 0; cpu_seconds() < before + 0.3 && tries < (int64_t{1} << 32); ++tries) {
    }
  }).join();
  EXPECT_GE(cpu_seconds(), before + 0.3);
}

}  // namespace
}  // namespace pecia::report
