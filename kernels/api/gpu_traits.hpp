// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What callers adapt to on GPUs. The CUDA backend answers by these functions, and so do plans for
/// GPUs on a machine that has none. The limits of codes are not measured.

#include "kernels/api/traits.hpp"

namespace pecia::kernels {

/// Rows of x that a tile of tensor cores multiplies with weights that are read once for them.
inline constexpr int64_t gpu_tile_rows = 16;
/// Up to how many rows of x codes are widened in registers, a tile of rows at a time. The blocks of
/// the same codes run side by side, so a cache has them for all but the first.
inline constexpr int64_t gpu_most_coded_rows = 64;

/// Backend::operand_type on GPUs.
DType gpu_operand_type(DType weights);

/// Tells whether heads of this size have a kernel for tensor cores. The others are computed in fp32.
bool gpu_attends_on_tensor_cores(DType keys, int64_t head_dim);

/// Backend::query_type on GPUs: tensor cores multiply rounded queries.
DType gpu_query_type(DType keys, int64_t head_dim);

/// Tells whether numbers of a type multiply x as it is. For fp8 the scales show whether x is also
/// quantised.
bool gpu_multiplies_codes(DType type, const TensorView& scales);

/// Backend::takes_gated_linear on GPUs. Weights of bf16 are long, and a library reads them once for
/// all rows, so they are taken for the rows of one tile, and fp8 that rounds more rows, too. Other
/// codes are read again for each tile.
bool gpu_takes_gated_linear(const GatedLinearArgs& args);

/// Rows of a recurrence that are taken in together.
inline constexpr int64_t gpu_chunk_rows = 64;

/// Tells whether GPUs with enough shared memory take rows in together: where bits may depend on it, keys
/// have at most 128 elements, a multiple of 4, and some sequence fills a chunk. Fewer rows take about as
/// long one after the other.
bool gpu_takes_chunks(const RecurrenceArgs& args);

/// FLOPs of a row that is taken in with others, each product counted once: for a head over key_dim ×
/// value_dim with the state and for it, and over value_dim with the earlier rows of its chunk; for a key
/// head over key_dim with these.
double gpu_chunk_flops(int64_t heads, int64_t key_heads, int64_t key_dim, int64_t value_dim,
                       bool corrects);

BackendTraits gpu_traits();

}  // namespace pecia::kernels
