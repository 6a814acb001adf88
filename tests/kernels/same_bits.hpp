// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstring>

#include "tests/kernels/tensors.hpp"

namespace pecia::test {

inline bool same_bits(const Tensor& a, const Tensor& b) {
  const std::vector<float> x = a.values(), y = b.values();
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
}

}  // namespace pecia::test
