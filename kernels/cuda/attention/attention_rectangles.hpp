// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Cuts prefill attention into a few large rectangles of rows × keys, each with a mask that a
/// library has. They are found on the host from the positions. The code is pure and is tested
/// without a GPU. It passes once over the positions of the rows and keys of long items.
///
/// Where rows and keys have consecutive positions, what a row sees is one of
///
///     full   x x x x     causal  x x x .     band    x x . .     mirror  x x x x
///            x x x x             x x x x     (of 2)  . x x .             . x x x
///                                                    . . x x             . . x x
///
/// The ring of context parallelism needs the first two of these. A rank's own chunks are causal,
/// the late chunk sees all of the early one, and visiting keys are seen by all rows or by none.
/// With a window, rows see a band of the keys around them, and the mirror of the keys at its far
/// end. Rows are cut where chunks end (kernels::Window): within a chunk all is full or causal.

#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/api/attention.hpp"

namespace pecia::kernels::cuda {

/// Tells which of `keys` keys row i of `rows` ≤ `keys` rows sees. Every row sees at least one key.
enum class Mask {
  full,    ///< all
  causal,  ///< j ≤ i + (keys − rows)
  band,    ///< the same as causal, and j > i + (keys − rows) − window
  mirror   ///< j ≥ i
};

std::string_view name_of(Mask mask);

enum class Fold {
  write,  ///< the rows' first result
  merge   ///< merged into what the rows have
};

struct FoldRows {
  int64_t first_row, num_rows;
  Fold how;
  bool operator==(const FoldRows&) const = default;
};

struct Rectangle {
  int64_t first_row, num_rows;
  /// Keys from a key of AttentionArgs::runs on, in memory. The keys of the next run lie beyond the
  /// run's end.
  int64_t run, first_key, num_keys;
  Mask mask;
  std::vector<FoldRows> folds;  ///< cover all of its rows
};

/// Rows of one item with consecutive positions, and everything that they see.
struct RectangleRows {
  int64_t first_row, num_rows;
  std::vector<Rectangle> rectangles;  ///< to be computed and folded in this order
  std::vector<FoldRows> unseen;       ///< rows that see no key at all
};

/// Limits of what is worth a library's calls. Rows are cut so that copies of q and out stay small.
struct RectangleLimits {
  /// Rows of an item. The libraries' tiles are as high.
  int64_t min_rows = 128;
  /// The mean of rows · keys over an item's rectangles. With 32 heads of 128, such a rectangle
  /// takes about as long as its launch.
  int64_t min_pairs = int64_t{1} << 17;
  int64_t max_rows = 16384;  ///< rows computed at once
  /// Keys of a rectangle.
  int64_t max_keys = std::numeric_limits<int64_t>::max();
};

/// Returns all rows of the item. The result is absent if the item is small, or if its positions
/// jump so often that there would be many small rectangles.
std::optional<std::vector<RectangleRows>> cut_rectangles(const AttentionArgs& args,
                                                         const AttentionItem& item,
                                                         const RectangleLimits& limits);

}  // namespace pecia::kernels::cuda
