// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The products of pack_transposed and gemm without the packing, for few rows: the same bits, since
/// every element is the same chain of fused multiply-adds in order of depth.

#include "kernels/cpu/dot.hpp"

namespace pecia::kernels::cpu {

/// Up to so many rows it is faster than packing. Measured for 2048 × 2048 weights on Zen 5: a third
/// of the time for one row; at 16 rows 15 % slower with fp32 weights (whose rows, a power of two
/// apart, push each other out of the cache) and 30 % faster with bf16, as still at 32.
constexpr int64_t most_ordered_rows(DType weight) {
  return weight == DType::fp32 ? 8 : 32;
}

/// As dot_rows; `columns` is a multiple of panel_columns(). One thread.
void ordered_dot_rows(const DotArgs& args);

}  // namespace pecia::kernels::cpu
