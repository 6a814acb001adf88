// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "lib/base/core/codes.hpp"
#include "lib/base/core/fp8_blocks.hpp"
#include "lib/base/core/random.hpp"
#include "tests/kernels/tensors.hpp"

namespace pecia::test {

/// A matrix of random numbers of deviation near 1, in a type of codes or in bf16.
class QuantizedMatrix {
 public:
  /// `gap`: elements between its rows. `scales`: of fp8, those of blocks, or one for each row.
  enum class Fp8Scales { blocks, rows };
  QuantizedMatrix(DType type, int64_t rows, int64_t columns, uint64_t seed, int64_t gap = 0,
                  Fp8Scales scales = Fp8Scales::blocks)
      : type_(type), rows_(rows), elements_(row_elements(type, columns)), gap_(gap) {
    bytes_.resize(rows * (elements_ + gap) * size_of(type));
    const auto random = [&](size_t i) { return static_cast<uint8_t>(mix(seed, i)); };
    if (type == DType::bf16) {
      Tensor numbers = Tensor::random({rows, columns + gap}, type, seed);
      const auto* const from = static_cast<const uint8_t*>(numbers.view().data());
      bytes_.assign(from, from + bytes_.size());
      return;
    }
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = random(i);
    of_row_ = row_scales(type, columns);
    if (type == DType::fp8) {  // stored in blocks; codes other than NaN have a deviation of 118
      for (uint8_t& code : bytes_)
        if ((code & 0x7f) == 0x7f) code = 0;
      of_row_ = scales == Fp8Scales::rows ? 1 : fp8_blocks(columns);
      scales_of_rows_ = scales == Fp8Scales::rows;
      for (int64_t i = 0; i < rows * of_row_; ++i)
        scales_.push_back((0.5f + static_cast<float>(random(i)) / 256) / 118);
      return;
    }
    if (type == DType::nvfp4) {  // codes have a deviation of 2.9, and scales one of 1.2
      factor_ = 0.22f + static_cast<float>(random(0)) / 2560;
      for (int64_t i = 0; i < rows * of_row_; ++i)  // from 0.5 to 1.875
        bytes_of_scales_.push_back(static_cast<uint8_t>(0x30 + random(i) % 16));
      return;
    }
    if (type == DType::mxfp4) {
      for (int64_t i = 0; i < rows * of_row_; ++i)
        bytes_of_scales_.push_back(static_cast<uint8_t>(125 + random(i) % 2));
      return;
    }
    for (int64_t i = 0; i < rows * of_row_; ++i) {
      const float step =
          (1.0f + static_cast<float>(random(i)) / 256) / (type == DType::int8 ? 110 : 7);
      const bool least = type == DType::int4 && i % 2 == 1;
      scales_.push_back(least ? -8 * scales_.back() : step);
    }
  }
  TensorView view() {
    return TensorView(bytes_.data(), type_, {rows_, elements_ + gap_}).slice_columns(0, elements_);
  }
  TensorView scales() {
    if (type_ == DType::bf16) return {};
    if (type_ == DType::mxfp4 || type_ == DType::nvfp4)
      return {bytes_of_scales_.data(), scale_type(type_), {rows_, of_row_}};
    if (type_ == DType::int8 || scales_of_rows_) return {scales_.data(), DType::fp32, {rows_}};
    return {scales_.data(), DType::fp32, {rows_, of_row_}};
  }

  float factor() const { return factor_; }

 private:
  DType type_;
  int64_t rows_, elements_, gap_, of_row_ = 0;
  bool scales_of_rows_ = false;
  float factor_ = 1;
  std::vector<uint8_t> bytes_, bytes_of_scales_;
  std::vector<float> scales_;
};

}  // namespace pecia::test
