// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "lib/base/core/error.hpp"
#include "lib/ranks/parallel/merge_tree.hpp"
#include "lib/ranks/parallel/pass.hpp"
#include "lib/ranks/parallel/ring.hpp"
#include "lib/ranks/parallel/virtual_ranks.hpp"

namespace pecia::parallel {
namespace {

/// The result as a formula, in which every merge and the order of its operands shows.
std::string formula_of(const std::vector<int>& arrivals, int& most_pending) {
  MergeTree tree(static_cast<int>(arrivals.size()));
  std::vector<std::string> results(arrivals.size());
  most_pending = 0;
  for (const int leaf : arrivals) {
    EXPECT_FALSE(tree.complete());
    EXPECT_EQ(results[leaf], "") << "the place is taken";
    results[leaf] = std::to_string(leaf);
    const auto waiting = std::count_if(results.begin(), results.end(),
                                       [](const auto& text) { return !text.empty(); });
    most_pending = std::max(most_pending, static_cast<int>(waiting));
    for (const MergeTree::Merge& merge : tree.arrive(leaf)) {
      results[merge.into] = "(" + results[merge.into] + results[merge.from] + ")";
      results[merge.from] = "";
    }
  }
  EXPECT_TRUE(tree.complete());
  return results[0];
}

TEST(MergeTree, IsTheSameInEveryOrderOfArrival) {
  std::vector<int> arrivals(layout_ranks);
  std::iota(arrivals.begin(), arrivals.end(), 0);
  int most = 0, pending = 0;
  do {
    ASSERT_EQ(formula_of(arrivals, pending), "(((01)(23))((45)(67)))");
    most = std::max(most, pending);
  } while (std::next_permutation(arrivals.begin(), arrivals.end()));
  EXPECT_EQ(most, 5);  // one of each pair, and the fifth
}

TEST(MergeTree, KeepsFewResultsWaitingInARing) {
  for (int rank = 0; rank < layout_ranks; ++rank) {
    std::vector<int> arrivals;
    for (int step = 0; step < layout_ranks; ++step)
      arrivals.push_back(visiting_rank(layout_ranks, rank, step));
    int pending = 0;
    EXPECT_EQ(formula_of(arrivals, pending), "(((01)(23))((45)(67)))");
    EXPECT_LE(pending, 5) << "rank " << rank;
  }
}

TEST(MergeTree, OfRanksIsTheUpperPartOfTheTreeOfVirtualRanks) {
  int pending = 0;
  EXPECT_EQ(formula_of({0}, pending), "0");
  EXPECT_EQ(formula_of({1, 0}, pending), "(01)");
  EXPECT_EQ(formula_of({2, 1, 3, 0}, pending), "((01)(23))");
}

TEST(MergeTree, RefusesALeafTwice) {
  MergeTree tree(4);
  tree.arrive(1);
  EXPECT_THROW(tree.arrive(1), InvalidArgument);
  tree.arrive(0);
  EXPECT_THROW(tree.arrive(1), InvalidArgument);
  EXPECT_THROW(tree.arrive(0), InvalidArgument);
  EXPECT_THROW(tree.arrive(4), InvalidArgument);
  EXPECT_THROW(MergeTree(6), InvalidArgument);
}

/// Positions that the virtual ranks of a rank own, and those that it owns itself.
TEST(VirtualRanks, ArePlayedWholeByOneRank) {
  for (const int num_ranks : {1, 2, 4, 8})
    for (const int64_t count : {0, 1, 2, 15, 16, 17, 31, 33, 300})
      for (int rank = 0; rank < num_ranks; ++rank) {
        const PassSequence rows{0, 100, count, PassSequence::balanced, layout_ranks};
        std::vector<int64_t> own, played;
        const auto append = [](std::vector<int64_t>& to, const std::vector<GlobalRange>& ranges) {
          for (const GlobalRange& range : ranges)
            for (int64_t position = range.begin; position < range.end; ++position)
              to.push_back(position);
        };
        append(own, rows_of(rows, num_ranks, rank));
        for (int virtual_rank = 0; virtual_rank < layout_ranks; ++virtual_rank)
          if (player_of(virtual_rank, layout_ranks, num_ranks) == rank)
            append(played, rows_of(rows, layout_ranks, virtual_rank));
        EXPECT_TRUE(std::is_sorted(own.begin(), own.end()));
        std::sort(played.begin(), played.end());
        EXPECT_EQ(own, played) << count << " tokens, rank " << rank << " of " << num_ranks;
      }
}

TEST(VirtualRanks, TakeGeneratedTokensInTurn) {
  for (const int num_ranks : {1, 2, 4, 8})
    for (int64_t first = 0; first < 20; ++first) {
      std::vector<int> rows(num_ranks);
      for (int64_t position = first; position < first + num_ranks; ++position) {
        const PassSequence row{0, position, 1, generated_owner(position, 3), layout_ranks};
        for (int rank = 0; rank < num_ranks; ++rank)
          rows[rank] += static_cast<int>(pecia::parallel::num_rows({row}, num_ranks, rank));
      }
      EXPECT_EQ(rows, std::vector<int>(num_ranks, 1)) << "from " << first;
    }
}

}  // namespace
}  // namespace pecia::parallel
