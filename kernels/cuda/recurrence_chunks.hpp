// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How the rows of a recurrence are cut into chunks, whose rows are taken in together
/// (recurrence_chunks_kernel.cuh).

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/api/gpu_traits.hpp"
#include "kernels/api/state_rows.hpp"

namespace pecia::kernels::cuda {

inline constexpr int chunk_rows = gpu_chunk_rows;

/// Neighbouring rows of an item. The last chunk of an item may have fewer than chunk_rows.
struct ChunkRows {
  int64_t first_row = 0, num_rows = 0;
  bool operator==(const ChunkRows&) const = default;
};

/// Chunks of an item that follow each other, by number in the plan, and the item's state.
struct ChunkSpan {
  int64_t state = 0, first_chunk = 0, num_chunks = 0;
  bool operator==(const ChunkSpan&) const = default;
};

/// Chunks and spans that are computed together, since there is memory for so many chunks' parts.
struct ChunkBand {
  int64_t first_chunk = 0, num_chunks = 0, first_span = 0, num_spans = 0;
  bool operator==(const ChunkBand&) const = default;
};

struct ChunkPlan {
  std::vector<ChunkRows> chunks;
  std::vector<ChunkSpan> spans;
  std::vector<ChunkBand> bands;
};

/// Cuts each item from its first row on. An item without rows is left out.
///
///     items of 150 and 64 rows, most_chunks 2     chunks   64 64 | 22 64
///                                                 spans    2     | 1  1       a band each
ChunkPlan plan_chunks(std::span<const StateRows> items, int64_t most_chunks);

}  // namespace pecia::kernels::cuda
