// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Turns rows of numbers into int8 and int4 codes (lib/base/core/codes.hpp), and turns these and codes of
/// mxfp4 and nvfp4 into numbers. All functions use one thread.

#include <cstdint>

#include "lib/base/core/codes.hpp"

namespace pecia::kernels::cpu {

/// Writes the codes and scales of a row of finite numbers, as QuantizeRowsArgs says.
void encode_row(const float* numbers, int64_t count, DType dtype, void* codes, float* scales);

/// Writes numbers [begin, begin + count) of a row. `begin` is a multiple of numbers_of(dtype).
/// Numbers up to the next multiple of int4_group may be written. `shared_by` is for int4
/// alone, and `factor`, which multiplies the numbers, for nvfp4.
void decode_row(const void* codes, DType dtype, const void* scales, int64_t begin, int64_t count,
                float* numbers, int64_t shared_by = int4_group, float factor = 1);

}  // namespace pecia::kernels::cpu
