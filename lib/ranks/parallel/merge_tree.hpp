// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Decides in which order partial results are merged. They may come in any order.

#include <vector>

namespace pecia::parallel {

/// A complete binary tree whose leaves are the parts 0, 1, … A node's result is the left child's
/// result with the right child's result merged into it. It is made as soon as both are there. A
/// node has the name of its first leaf, and so has the place where its result lies.
///
///     4 leaves, arriving 3 0 1 2     3: –    0: –    1: 1 into 0    2: 3 into 2, 2 into 0
///
/// The sequence of the merges differs with the order of arrival. The operands of each result never
/// do.
class MergeTree {
 public:
  /// `num_leaves` is a power of two.
  explicit MergeTree(int num_leaves);

  struct Merge {
    int into, from;
    bool operator==(const Merge&) const = default;
  };
  /// Tells the tree that a leaf has arrived. Returns the merges to make now, in this order. The
  /// place `from` is free afterwards.
  std::vector<Merge> arrive(int leaf);

  /// Tells whether all leaves have arrived. Then node 0 is the result.
  bool complete() const { return widths_.front() == static_cast<int>(widths_.size()); }

 private:
  std::vector<int> widths_;  ///< by first leaf: leaves of the result that lies there; 0: none
};

}  // namespace pecia::parallel
