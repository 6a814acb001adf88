// SPDX-License-Identifier: Apache-2.0
#include "kernels/api/checks.hpp"

#include "lib/base/core/error.hpp"

namespace pecia::kernels {
namespace {

std::string shape_of(const TensorView& view) {
  std::string text = "[";
  for (int axis = 0; axis < view.rank(); ++axis)
    text += fmt::format("{}{}", axis ? ", " : "", view.size(axis));
  return text + "]";
}

}  // namespace

void check_shape(std::string_view name, const TensorView& view,
                 std::initializer_list<int64_t> shape) {
  bool same = view.rank() == static_cast<int>(shape.size());
  int axis = 0;
  for (const int64_t extent : shape) same = same && view.size(axis++) == extent;
  PECIA_CHECK(same, "{} is {}, expected [{}]", name, shape_of(view), fmt::join(shape, ", "));
}

void check_rank(std::string_view name, const TensorView& view, int rank) {
  PECIA_CHECK(view.rank() == rank, "{} is {}, expected {} axes", name, shape_of(view), rank);
}

void check_fp32(std::string_view name, const TensorView& view) {
  PECIA_CHECK(view.dtype() == DType::fp32, "{} is {}, expected fp32", name, name_of(view.dtype()));
}

void check_float(std::string_view name, DType dtype) {
  PECIA_CHECK(is_float(dtype), "{} is {}, expected fp32, bf16 or fp16", name, name_of(dtype));
}

void check_dense(std::string_view name, const TensorView& view) {
  PECIA_CHECK(view.dense(), "{} {} has row stride {}, expected a dense tensor", name,
              shape_of(view), view.row_stride());
}

void check_size(std::string_view name, size_t size, int64_t expected) {
  PECIA_CHECK(static_cast<int64_t>(size) == expected, "{} has {} entries, expected {}", name, size,
              expected);
}

void check_indices(std::string_view name, std::span<const int64_t> indices, int64_t limit) {
  for (size_t i = 0; i < indices.size(); ++i)
    PECIA_CHECK(indices[i] >= 0 && indices[i] < limit, "{}[{}] is {}, outside [0, {})", name, i,
                indices[i], limit);
}

}  // namespace pecia::kernels
