// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Vectors stored in FP8: codes with one fp32 scale for the whole vector, element = code · scale.

#include <algorithm>
#include <limits>

#include "lib/base/core/dtype.hpp"

namespace pecia {

/// The scale of a vector whose greatest magnitude is `greatest`; that element becomes the code
/// ±448. The scale is never 0, so zeros are stored as zeros. It is NaN for a vector with a NaN or
/// an infinity; all elements of such a vector are NaN when they are read.
constexpr float fp8_scale(float greatest) {
  if (!(greatest <= std::numeric_limits<float>::max()))
    return std::numeric_limits<float>::quiet_NaN();
  return std::max(greatest / max_fp8, std::numeric_limits<float>::min());
}

/// Bytes of a vector of `elements` numbers, including its scale where the type has one.
constexpr int64_t vector_bytes(DType dtype, int64_t elements) {
  return elements * size_of(dtype) + (dtype == DType::fp8 ? size_of(DType::fp32) : 0);
}

/// Bytes of one element of such a vector, including its share of the scale.
constexpr double element_bytes(DType dtype, int64_t elements) {
  return static_cast<double>(vector_bytes(dtype, elements)) / static_cast<double>(elements);
}

}  // namespace pecia
