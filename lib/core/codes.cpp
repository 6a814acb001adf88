// SPDX-License-Identifier: Apache-2.0
#include "lib/core/codes.hpp"

namespace pecia {

float load_number(const void* row, DType dtype, const float* scales, int64_t index) {
  if (dtype == DType::int8)
    return static_cast<float>(static_cast<const int8_t*>(row)[index]) * *scales;
  if (dtype == DType::int4) {
    const float* const group = scales + index / int4_group * 2;
    return group[1] + static_cast<float>(int4_code(row, index)) * group[0];
  }
  const float number = load_as_float(row, dtype, index);
  return dtype == DType::fp8 ? number * *scales : number;
}

}  // namespace pecia
