#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "lib/report/memory.hpp"

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

}  // namespace
}  // namespace pecia::report
