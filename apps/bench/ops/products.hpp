// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "apps/bench/ops/inputs.hpp"

namespace pecia::bench::ops {

enum class Packed { no, in_panels };

/// `splits`: parts of a row-invariant sum; 0: the product is not row invariant. `result` is the type
/// of y; x has it, too. `packed`: whether the weights lie in panels, too, as those of a run do.
Case linear(const Model& model, int64_t rows, int64_t out, int64_t in, DType dtype = DType::bf16,
            int splits = 0, DType result = DType::fp32, Packed packed = Packed::no);

Case quantize_rows(const Model& model, int64_t rows, int64_t columns);

/// Compare with one product of twice as many columns, and with gated_activation.
Case gated_linear(const Model& model, int64_t rows, DType dtype);
/// fp32 rows, bf16 matrices: latents of DeepSeek-V3 have 128 heads of 512 × 128 and 128 × 512.
Case head_linear(int64_t rows, int64_t heads, int64_t out, int64_t in);

}  // namespace pecia::bench::ops
