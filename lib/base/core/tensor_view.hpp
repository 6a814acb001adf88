// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A tensor in memory that another object owns: pointer, element type, shape, strides. Views are
/// copied freely.

#include <array>
#include <cstdint>
#include <initializer_list>

#include "lib/base/core/dtype.hpp"
#include "lib/base/core/error.hpp"

namespace pecia {

/// Row-major view of up to four dimensions. The last dimension is always dense (stride 1); the
/// first may have any stride, so a column slice of a matrix is a view too.
class TensorView {
 public:
  static constexpr int max_rank = 4;

  /// The absent tensor: `view` is false in a condition.
  TensorView() = default;

  /// A dense tensor at `data`.
  TensorView(void* data, DType dtype, std::initializer_list<int64_t> shape)
      : data_(data), dtype_(dtype), rank_(static_cast<int>(shape.size())) {
    PECIA_CHECK(rank_ >= 1 && rank_ <= max_rank, "tensor of rank {}", rank_);
    int axis = 0;
    for (const int64_t extent : shape) {
      PECIA_CHECK(extent >= 0, "extent {} of axis {}", extent, axis);
      shape_[axis++] = extent;
    }
    row_stride_ = row_elements();
  }
  /// Makes a view of const memory. The contracts of the ops say which tensors they only read.
  TensorView(const void* data, DType dtype, std::initializer_list<int64_t> shape)
      : TensorView(const_cast<void*>(data), dtype, shape) {}

  explicit operator bool() const { return rank_ > 0; }

  DType dtype() const { return dtype_; }
  int rank() const { return rank_; }
  int64_t size(int axis) const { return shape_[axis]; }
  int64_t rows() const { return shape_[0]; }
  /// Number of elements at one index of axis 0.
  int64_t row_elements() const {
    int64_t count = 1;
    for (int axis = 1; axis < rank_; ++axis) count *= shape_[axis];
    return count;
  }
  int64_t elements() const { return shape_[0] * row_elements(); }
  /// Number of elements from one index of axis 0 to the next.
  int64_t row_stride() const { return row_stride_; }
  bool dense() const { return row_stride_ == row_elements() || shape_[0] <= 1; }

  void* data() const { return data_; }
  template <typename T>
  T* as() const {
    PECIA_CHECK(sizeof(T) == static_cast<size_t>(size_of(dtype_)), "a {} view read as {} bytes",
                name_of(dtype_), sizeof(T));
    return static_cast<T*>(data_);
  }
  /// First element of row `row`.
  void* row(int64_t row) const {
    return static_cast<char*>(data_) + row * row_stride_ * size_of(dtype_);
  }

  /// Rows [begin, begin + count) of axis 0.
  TensorView slice_rows(int64_t begin, int64_t count) const {
    PECIA_CHECK(begin >= 0 && count >= 0 && begin + count <= shape_[0], "rows [{}, {}) of {}",
                begin, begin + count, shape_[0]);
    TensorView view = *this;
    view.data_ = row(begin);
    view.shape_[0] = count;
    return view;
  }

  /// Columns [begin, begin + count) of a matrix.
  TensorView slice_columns(int64_t begin, int64_t count) const {
    PECIA_CHECK(rank_ == 2 && begin >= 0 && count >= 0 && begin + count <= shape_[1],
                "columns [{}, {}) of {}", begin, begin + count, shape_[1]);
    TensorView view = *this;
    view.data_ = static_cast<char*>(data_) + begin * size_of(dtype_);
    view.shape_[1] = count;
    return view;
  }

  /// The same dense elements under another shape.
  TensorView reshape(std::initializer_list<int64_t> shape) const {
    PECIA_CHECK(dense(), "only a dense tensor can be reshaped");
    const TensorView view(data_, dtype_, shape);
    PECIA_CHECK(view.elements() == elements(), "{} elements reshaped to {}", elements(),
                view.elements());
    return view;
  }

 private:
  void* data_ = nullptr;
  DType dtype_ = DType::fp32;
  int rank_ = 0;
  std::array<int64_t, max_rank> shape_{};
  int64_t row_stride_ = 0;
};

}  // namespace pecia
