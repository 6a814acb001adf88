// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Numbers that ranks add.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <type_traits>

#include "lib/base/core/error.hpp"
#include "lib/base/core/tensor_view.hpp"

namespace pecia::comm {

template <typename Range>
concept Floats = std::ranges::contiguous_range<Range> &&
                 std::same_as < std::remove_cv_t<std::ranges::range_value_t<Range>>,
float > ;

/// Dense numbers in the memory that a group's transfers work on. They are fp32, or bf16: the type in
/// which they travel. Like TensorView, it is a view, also of numbers that a call only reads.
class Addends {
 public:
  Addends() = default;
  Addends(void* data, DType dtype, int64_t count)
      : data_(static_cast<std::byte*>(data)), dtype_(dtype), count_(count) {
    PECIA_CHECK(dtype == DType::fp32 || dtype == DType::bf16, "sums of {}", name_of(dtype));
    PECIA_CHECK(count >= 0, "{} numbers to add", count);
  }
  Addends(const TensorView& dense) : Addends(dense.data(), dense.dtype(), dense.elements()) {
    PECIA_CHECK(dense.dense(), "sums of a tensor that is not dense");
  }
  template <Floats Range>
  Addends(Range&& floats)
      : Addends(const_cast<float*>(std::ranges::data(floats)), DType::fp32,
                static_cast<int64_t>(std::ranges::size(floats))) {}

  DType dtype() const { return dtype_; }
  int64_t count() const { return count_; }
  bool empty() const { return count_ == 0; }
  std::byte* data() const { return data_; }
  template <typename T>
  T* as() const {
    return TensorView(data_, dtype_, {count_}).as<T>();
  }
  std::span<std::byte> bytes() const {
    return {data_, static_cast<size_t>(count_ * size_of(dtype_))};
  }

  /// The numbers [begin, begin + count).
  Addends part(int64_t begin, int64_t count) const {
    PECIA_CHECK(0 <= begin && 0 <= count && count <= count_ - begin, "numbers [{}, {} + {}) of {}",
                begin, begin, count, count_);
    return {data_ + begin * size_of(dtype_), dtype_, count};
  }

 private:
  std::byte* data_ = nullptr;
  DType dtype_ = DType::fp32;
  int64_t count_ = 0;
};

}  // namespace pecia::comm
