// SPDX-License-Identifier: Apache-2.0
#include "lib/base/core/codes.hpp"

#include <array>
#include <limits>

namespace pecia {

float power_of_scale(uint8_t scale) {
  if (scale == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(scale == 0 ? 0x00400000u : uint32_t{scale} << 23);
}

const float* fp8_numbers() {
  static const auto numbers = [] {
    std::array<float, 256> all{};
    for (size_t code = 0; code < all.size(); ++code)
      all[code] = fp8_to_float(static_cast<uint8_t>(code));
    return all;
  }();
  return numbers.data();
}

float fp4_to_float(int code) {
  constexpr float magnitudes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  return (code & 8) != 0 ? -magnitudes[code & 7] : magnitudes[code & 7];
}

float load_number(const void* row, DType dtype, const void* scales, int64_t index,
                  int64_t shared_by) {
  const auto* const factors = static_cast<const float*>(scales);
  if (dtype == DType::int8)
    return static_cast<float>(static_cast<const int8_t*>(row)[index]) * *factors;
  if (dtype == DType::int4) {
    const float* const group = factors + index / shared_by * 2;
    return group[1] + static_cast<float>(int4_code(row, index)) * group[0];
  }
  if (dtype == DType::mxfp4 || dtype == DType::nvfp4) {
    const uint8_t pair = static_cast<const uint8_t*>(row)[index / 2];
    const uint8_t scale = static_cast<const uint8_t*>(scales)[index / numbers_of(dtype)];
    return fp4_to_float(index % 2 == 0 ? pair & 15 : pair >> 4) *
           (dtype == DType::mxfp4 ? power_of_scale(scale) : fp8_to_float(scale));
  }
  const float number = load_as_float(row, dtype, index);
  return dtype == DType::fp8 ? number * *factors : number;
}

}  // namespace pecia
