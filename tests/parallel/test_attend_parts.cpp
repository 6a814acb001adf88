// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/ranks/parallel/attend_parts.hpp"

namespace pecia::parallel {
namespace {

std::vector<RowRange> even_rows(int64_t count, int ranks) {
  std::vector<RowRange> rows;
  for (int rank = 0; rank < ranks; ++rank) rows.push_back(row_part({0, count}, ranks, rank));
  return rows;
}

TEST(AttendParts, AreThoseOfTheWorkedExample) {
  const std::vector<AttendPart> parts{
      {{512, 768}, {}}, {{1024, 1536}, {1}}, {{0, 512}, {2}}, {{768, 1024}, {}}};
  EXPECT_EQ(attend_parts(even_rows(1536, 3), 1), parts);
}

TEST(AttendParts, OfFewRowsAreOne) {
  const std::vector<AttendPart> one{{{0, 1535}, {1, 2}}};
  EXPECT_EQ(attend_parts(even_rows(1535, 3), 1), one);
  EXPECT_EQ(attend_at_once(even_rows(1535, 3)), one);
  EXPECT_EQ(attend_parts(even_rows(0, 2), 0), (std::vector<AttendPart>{{{0, 0}, {1}}}));
  EXPECT_EQ(attend_parts(even_rows(9999, 1), 0), (std::vector<AttendPart>{{{0, 9999}, {}}}));
}

TEST(AttendParts, HaveEveryRowOnceAndEveryOtherRankInStepWithThatRank) {
  for (const int ranks : {2, 3, 8})
    for (const int64_t count : {100, 512 * ranks, 5001}) {
      const std::vector<RowRange> rows = even_rows(count, ranks);
      for (int rank = 0; rank < ranks; ++rank) {
        std::vector<int> seen(count);
        std::vector<int> distances;
        const std::vector<AttendPart> parts = attend_parts(rows, rank);
        EXPECT_EQ(parts.size(), count < 512 * ranks ? 1u : ranks + 1u);
        for (const AttendPart& part : parts) {
          for (int64_t row = part.rows.begin; row < part.rows.end; ++row) ++seen[row];
          distances.insert(distances.end(), part.distances.begin(), part.distances.end());
          if (parts.size() > 1 && !part.distances.empty()) {
            EXPECT_EQ(part.rows, rows[(rank + part.distances[0]) % ranks]);
          }
        }
        EXPECT_EQ(seen, std::vector<int>(count, 1));
        ASSERT_EQ(distances.size(), static_cast<size_t>(ranks - 1));
        for (int i = 0; i + 1 < ranks; ++i) EXPECT_EQ(distances[i], i + 1);
      }
    }
}

}  // namespace
}  // namespace pecia::parallel
