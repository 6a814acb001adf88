// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/merge_tree.hpp"

#include <bit>

#include "lib/base/core/error.hpp"

namespace pecia::parallel {

MergeTree::MergeTree(int num_leaves) : widths_(num_leaves > 0 ? num_leaves : 0) {
  PECIA_CHECK(num_leaves > 0 && std::has_single_bit(static_cast<unsigned>(num_leaves)),
              "a tree of {} leaves", num_leaves);
}

std::vector<MergeTree::Merge> MergeTree::arrive(int leaf) {
  const int num_leaves = static_cast<int>(widths_.size());
  PECIA_CHECK(leaf >= 0 && leaf < num_leaves, "leaf {} of {}", leaf, num_leaves);
  // Its place may hold nothing, and no wider node may cover it.
  for (int width = 1; width <= num_leaves; width *= 2)
    PECIA_CHECK(widths_[leaf / width * width] < width, "leaf {} has arrived before", leaf);
  std::vector<Merge> merges;
  int node = leaf, width = 1;
  widths_[node] = width;
  for (; width < num_leaves; width *= 2) {
    const int into = node / (2 * width) * (2 * width), from = into + width;
    if (widths_[into] != width || widths_[from] != width) break;
    merges.push_back({into, from});
    widths_[into] = 2 * width;
    widths_[from] = 0;
    node = into;
  }
  return merges;
}

}  // namespace pecia::parallel
