// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Rows of int8 and int4 codes (lib/core/codes.hpp), made of numbers and made numbers again. One
/// thread.

#include <cstdint>

#include "lib/core/dtype.hpp"

namespace pecia::kernels::cpu {

/// Codes and scales of a row of finite numbers, as QuantizeRowsArgs says.
void encode_row(const float* numbers, int64_t count, DType dtype, void* codes, float* scales);

/// Numbers [begin, begin + count) of a row; `begin` is a multiple of numbers_of(dtype). Up to the
/// next multiple of int4_group may be written.
void decode_row(const void* codes, DType dtype, const float* scales, int64_t begin, int64_t count,
                float* numbers);

}  // namespace pecia::kernels::cpu
