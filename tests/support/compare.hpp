// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Comparison of float arrays that NaN cannot pass, and inputs that are never constant.

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

#include "lib/base/core/tensor_view.hpp"

namespace pecia::test {

/// Elementwise |a − b| ≤ absolute + relative · |b|. Infinities must be equal, NaN must meet NaN.
/// The failure prints the worst element's index and both values, and the root-mean-square
/// difference.
testing::AssertionResult all_close(std::span<const float> actual, std::span<const float> expected,
                                   double absolute, double relative = 0);

/// The same of dense views of any float dtype.
testing::AssertionResult all_close(const TensorView& actual, const TensorView& expected,
                                   double absolute, double relative = 0);

/// Normal numbers, standard deviation `scale`: a function of (seed, index) alone.
std::vector<float> random_floats(int64_t count, uint64_t seed, float scale = 1.0f);

/// The values rounded to `dtype` and stored densely; a view of it with the shape given is a tensor.
std::vector<std::byte> stored_as(DType dtype, std::span<const float> values);

}  // namespace pecia::test
