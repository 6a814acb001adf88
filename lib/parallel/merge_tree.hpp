// SPDX-License-Identifier: Apache-2.0
#pragma once
/// In which order partial results are merged, whatever the order in which they come.

#include <vector>

namespace pecia::parallel {

/// A complete binary tree whose leaves are parts 0, 1, …: each node is the left child's result with
/// the right one's merged into it, made as soon as both are there. A node is named by its first
/// leaf, as is the place where its result lies.
///
///     4 leaves, arriving 3 0 1 2     3: –    0: –    1: 1 into 0    2: 3 into 2, 2 into 0
///
/// The sequence of merges differs with the order of arrival; each result's operands never do.
class MergeTree {
 public:
  /// `num_leaves` is a power of two.
  explicit MergeTree(int num_leaves);

  struct Merge {
    int into, from;
    bool operator==(const Merge&) const = default;
  };
  /// What is to be merged now, in this order. `from` is free afterwards.
  std::vector<Merge> arrive(int leaf);

  /// Nothing is to come: node 0 is the result.
  bool complete() const { return widths_.front() == static_cast<int>(widths_.size()); }

 private:
  std::vector<int> widths_;  ///< by first leaf: leaves of the result that lies there, 0 for none
};

}  // namespace pecia::parallel
