// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Keys and values as a cache gives them back.

#include <algorithm>
#include <cmath>
#include <vector>

#include "lib/base/core/fp8_vector.hpp"

namespace pecia::attention {

/// Vectors of `head_dim` numbers each, rounded as a cache of `dtype` rounds them.
inline std::vector<float> stored_vectors(std::vector<float> vectors, DType dtype,
                                         int64_t head_dim) {
  if (dtype == DType::bf16)
    for (float& x : vectors) x = bf16_to_float(float_to_bf16(x));
  if (dtype != DType::fp8) return vectors;
  for (auto head = vectors.begin(); head != vectors.end(); head += head_dim) {
    float greatest = 0;
    for (auto x = head; x != head + head_dim; ++x) greatest = std::max(greatest, std::fabs(*x));
    const float scale = fp8_scale(greatest);
    for (auto x = head; x != head + head_dim; ++x)
      *x = fp8_to_float(float_to_fp8(*x / scale)) * scale;
  }
  return vectors;
}

}  // namespace pecia::attention
