// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A view as kernels take it.

#include <cstdint>

#include "kernels/cuda/shared/host_device.hpp"
#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels::cuda {

/// Rows of fp32 or of a stored type. They are `stride` elements apart.
template <typename T>
struct Matrix {
  T* data;
  int64_t rows, columns, stride;

  PECIA_HD T* row(int64_t index) const { return data + index * stride; }
};

/// Returns the matrix of a view. All axes after the first are the columns.
template <typename T>
Matrix<T> matrix(const TensorView& view) {
  return {static_cast<T*>(view.data()), view.rows(), view.row_elements(), view.row_stride()};
}

/// Tells whether `Count` elements at a time can be accessed at once everywhere in the view.
template <int Count>
bool aligned_to(const TensorView& view) {
  const int64_t bytes = Count * size_of(view.dtype());
  return view.row_elements() % Count == 0 && view.row_stride() % Count == 0 &&
         reinterpret_cast<uintptr_t>(view.data()) % bytes == 0;
}

}  // namespace pecia::kernels::cuda
