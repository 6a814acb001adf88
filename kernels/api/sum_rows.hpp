// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>

#include "kernels/api/linear.hpp"
#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

/// What becomes of rows that belong together.
enum class CombineRows { sum, largest };

/// Gathers rows, or adds rows that belong together.
///
///     out[t, :] = Σ_j x[which[t · n + j], :]        j = 0 … n − 1, in this order, in fp32
///
/// n is which.size() / rows of out. A number below zero stands for no row. With n = 1 rows are
/// copied, and x may have any type of floats. Sums, and what is added to out, are of fp32. With
/// CombineRows::largest it is the largest term in place of the sum, at least 0, of fp32; NaN is passed
/// over. Zero rows do nothing.
struct SumRowsArgs {
  TensorView x;                    ///< [any, width] fp32, bf16 or fp16
  std::span<const int32_t> which;  ///< [rows, n] of the host's memory
  TensorView out;                  ///< [rows, width] of x's type, written or added to
  Accumulate accumulate = Accumulate::no;
  CombineRows combine = CombineRows::sum;  ///< largest: nothing is accumulated

  int64_t terms() const {
    return out.rows() == 0 ? 0 : static_cast<int64_t>(which.size()) / out.rows();
  }
};

}  // namespace pecia::kernels
