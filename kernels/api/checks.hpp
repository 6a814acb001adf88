// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the checks of ops' arguments (validate.hpp) have in common. Each throws InvalidArgument and
/// calls the argument by `name`.

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "lib/base/core/error.hpp"
#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

void check_shape(std::string_view name, const TensorView& view,
                 std::initializer_list<int64_t> shape);
void check_rank(std::string_view name, const TensorView& view, int rank);
void check_dense(std::string_view name, const TensorView& view);
void check_fp32(std::string_view name, const TensorView& view);
void check_float(std::string_view name, DType dtype);  ///< fp32, bf16 or fp16
void check_size(std::string_view name, size_t size, int64_t expected);
/// Each of them is in [0, limit).
void check_indices(std::string_view name, std::span<const int64_t> indices, int64_t limit);

}  // namespace pecia::kernels
