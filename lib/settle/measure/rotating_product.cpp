// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/measure/rotating_product.hpp"

#include <algorithm>

#include "lib/base/core/codes.hpp"
#include "lib/settle/measure/product_rates.hpp"

namespace pecia::measure {

RotatingProduct::RotatingProduct(const attention::Compute& compute, int64_t most_rows,
                                 int64_t depth, DType weights, int64_t bytes) {
  const int64_t elements = row_elements(weights, depth);
  const int64_t columns = std::max(unit, bytes / (elements * size_of(weights)) / unit * unit);
  weight_ = weight_buffer_.tensor(weights, {columns, elements});
  x_ = x_buffer_.tensor(DType::fp32, {most_rows, depth});
  narrow_x_ = narrow_x_buffer_.tensor(DType::bf16, {most_rows, depth});
  for (const TensorView& tensor : {weight_, x_, narrow_x_}) fill_random(compute, tensor);
  if (!is_code(weights)) return;
  scales_ = scale_buffer_.tensor(scale_type(weights), {columns, row_scales(weights, depth)});
  fill_random(compute, scales_);
}

int64_t RotatingProduct::weight_bytes(int64_t columns) const {
  const int64_t scales = scales_ ? scales_.size(1) * size_of(scales_.dtype()) : 0;
  return columns * (weight_.size(1) * size_of(weight_.dtype()) + scales);
}

void RotatingProduct::run(const attention::Compute& compute, int64_t rows, int64_t columns) {
  panels_.try_emplace(&compute.backend, compute.backend, compute.stream, weight_);
  if (next_ + columns > weight_.rows()) next_ = 0;
  const DType stored = weight_.dtype();
  const bool narrow = compute.backend.operand_type(stored) == DType::bf16;
  kernels::LinearArgs args{(narrow ? narrow_x_ : x_).slice_rows(0, rows),
                           weight_.slice_rows(next_, columns),
                           {},
                           y_buffer_.tensor(DType::fp32, {rows, columns})};
  if (is_code(stored)) {
    const TensorView scales = scales_.slice_rows(next_, columns);
    args.weight_scales = numbers_of(stored) > 1 ? scales : scales.reshape({columns});
  }
  compute.backend.linear(args, compute.stream);
  compute.stream.synchronize();
  next_ += columns;
}

}  // namespace pecia::measure
