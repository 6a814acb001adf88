// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Vectors stored in FP8: codes, and one fp32 scale for all of them, element = code · scale.

#include <algorithm>
#include <limits>

#include "lib/core/dtype.hpp"

namespace pecia {

/// The scale of a vector whose greatest magnitude is `greatest`, which becomes the code ±448. Never
/// 0, so that zeros are stored as zeros; NaN for a vector with a NaN or an infinity, whose elements
/// then are all NaN when they are read.
constexpr float fp8_scale(float greatest) {
  if (!(greatest <= std::numeric_limits<float>::max()))
    return std::numeric_limits<float>::quiet_NaN();
  return std::max(greatest / max_fp8, std::numeric_limits<float>::min());
}

/// Bytes of `elements` numbers that lie together: with their scale where the type wants one.
constexpr int64_t vector_bytes(DType dtype, int64_t elements) {
  return elements * size_of(dtype) + (dtype == DType::fp8 ? size_of(DType::fp32) : 0);
}

/// Of one of them, with its share of the scale.
constexpr double element_bytes(DType dtype, int64_t elements) {
  return static_cast<double>(vector_bytes(dtype, elements)) / static_cast<double>(elements);
}

}  // namespace pecia
