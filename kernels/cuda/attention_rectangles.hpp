// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Prefill attention as a few large rectangles of rows × keys, each with a mask that a library has:
/// found on the host from the positions, pure, tested without a GPU. Costs a pass over the
/// positions of the rows and keys of long items.
///
/// Where rows and keys have consecutive positions, what a row sees is one of
///
///     full   x x x x     causal  x x x .     band    x x . .     mirror  x x x x
///            x x x x             x x x x     (of 2)  . x x .             . x x x
///                                                    . . x x             . . x x
///
/// of which the ring of context parallelism needs the first two: a rank's own chunks are causal,
/// the late chunk sees all of the early one, and visiting keys are seen by all rows or by none.
/// With a window, rows see a band of the keys around them and the mirror of those at its far end.

#include <optional>
#include <string_view>
#include <vector>

#include "kernels/api/attention.hpp"

namespace pecia::kernels::cuda {

/// Which of `keys` keys row i of `rows` ≤ `keys` rows sees; every row sees at least one.
enum class Mask {
  full,    ///< all
  causal,  ///< j ≤ i + (keys − rows)
  band,    ///< as causal, and j > i + (keys − rows) − window
  mirror   ///< j ≥ i
};

std::string_view name_of(Mask mask);

enum class Fold {
  write,  ///< the rows' first result
  merge   ///< into what the rows have
};

struct FoldRows {
  int64_t first_row, num_rows;
  Fold how;
  bool operator==(const FoldRows&) const = default;
};

struct Rectangle {
  int64_t first_row, num_rows;
  int64_t run, first_key, num_keys;  ///< from a key of AttentionArgs::runs on, in memory: beyond
                                     ///< the run's end lie the keys of the next
  Mask mask;
  std::vector<FoldRows> folds;  ///< all of its rows
};

/// Rows of one item with consecutive positions, and everything that they see.
struct RectangleRows {
  int64_t first_row, num_rows;
  std::vector<Rectangle> rectangles;  ///< to be computed and folded in this order
  std::vector<FoldRows> unseen;       ///< rows that see no key at all
};

/// What is worth a library's calls. Rows are cut so that copies of q and out stay small.
struct RectangleLimits {
  int64_t min_rows = 128;                ///< of an item; the libraries' tiles are as high
  int64_t min_pairs = int64_t{1} << 17;  ///< rows · keys, the mean of an item's rectangles: with 32
                                         ///< heads of 128 about as long as launching one takes
  int64_t max_rows = 16384;              ///< computed at once
};

/// All rows of the item, or nothing: where it is small, or its positions jump so often that there
/// would be many small rectangles.
std::optional<std::vector<RectangleRows>> cut_rectangles(const AttentionArgs& args,
                                                         const AttentionItem& item,
                                                         const RectangleLimits& limits);

}  // namespace pecia::kernels::cuda
