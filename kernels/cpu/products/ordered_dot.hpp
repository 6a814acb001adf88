// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The products of pack_transposed and gemm without the packing, for few rows. The bits are the
/// same, since every element is the same chain of fused multiply-adds in order of depth.

#include "kernels/cpu/products/dot.hpp"

namespace pecia::kernels::cpu {

/// Returns the number of rows up to which these products are faster than packing. Measured for
/// 2048 × 2048 weights on Zen 5, one row takes a third of the time. 16 rows are 15 % slower with
/// fp32 weights, whose rows, a power of two apart, push each other out of the cache. With bf16
/// weights 16 rows are 30 % faster, and 32 rows still are.
constexpr int64_t most_ordered_rows(DType weight) {
  return weight == DType::fp32 ? 8 : 32;
}

/// Does the same as dot_rows. `columns` is a multiple of panel_columns(). It uses one thread.
void ordered_dot_rows(const DotArgs& args);

}  // namespace pecia::kernels::cpu
