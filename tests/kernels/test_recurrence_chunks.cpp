// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/recurrence_chunks.hpp"

namespace pecia::kernels::cuda {
namespace {

using testing::ElementsAre;

TEST(RecurrenceChunks, CutItemsAndBands) {
  const std::vector<StateRows> items{{0, 150, 7}, {150, 0, 5}, {150, 64, 3}};
  const ChunkPlan plan = plan_chunks(items, 2);
  EXPECT_THAT(plan.chunks, ElementsAre(ChunkRows{0, 64}, ChunkRows{64, 64}, ChunkRows{128, 22},
                                       ChunkRows{150, 64}));
  EXPECT_THAT(plan.spans, ElementsAre(ChunkSpan{7, 0, 2}, ChunkSpan{7, 2, 1}, ChunkSpan{3, 3, 1}));
  EXPECT_THAT(plan.bands, ElementsAre(ChunkBand{0, 2, 0, 1}, ChunkBand{2, 2, 1, 2}));
}

/// Every row once, in its order; spans of a band have its chunks, and a state is once in a band.
TEST(RecurrenceChunks, HaveEveryRowOnce) {
  const std::vector<StateRows> items{
      {0, 1, 0}, {1, 63, 1}, {64, 64, 2}, {128, 65, 3}, {193, 400, 4}};
  for (int64_t most = 1; most <= 12; ++most) {
    const ChunkPlan plan = plan_chunks(items, most);
    int64_t row = 0, chunk = 0, span = 0;
    for (const ChunkRows& rows : plan.chunks) {
      EXPECT_EQ(rows.first_row, row);
      EXPECT_TRUE(0 < rows.num_rows && rows.num_rows <= chunk_rows);
      row += rows.num_rows;
    }
    EXPECT_EQ(row, 593);
    for (const ChunkBand& band : plan.bands) {
      EXPECT_EQ(band.first_chunk, chunk);
      EXPECT_EQ(band.first_span, span);
      EXPECT_LE(band.num_chunks, most);
      int64_t before = -1;
      for (; span < band.first_span + band.num_spans; ++span) {
        EXPECT_EQ(plan.spans[span].first_chunk, chunk);
        EXPECT_GT(plan.spans[span].state, before);
        before = plan.spans[span].state;
        chunk += plan.spans[span].num_chunks;
      }
      EXPECT_EQ(chunk, band.first_chunk + band.num_chunks);
    }
    EXPECT_EQ(chunk, std::ssize(plan.chunks));
  }
}

}  // namespace
}  // namespace pecia::kernels::cuda
