// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/row_need.hpp"

namespace pecia::attention {

RowNeed::RowNeed(const Compute& compute)
    : compute_(compute), need_(compute.buffer()), here_(compute.buffer()) {}

void RowNeed::begin_pass(int64_t rows) {
  known_ = false;
  rows_ = rows;
  const int64_t bytes = rows * size_of(DType::fp32);
  need_.reserve(bytes);
  compute_.device.zero(need_.data(), bytes, compute_.stream);
}

void RowNeed::attended_here(const TensorView& lse) {
  compute_.copy(lse, here_.tensor(DType::fp32, {lse.rows(), lse.size(1)}));
}

void RowNeed::learn(const TensorView& lse, std::span<const kernels::PickedParts> always,
                    std::span<const kernels::LearntRows> rows) {
  const report::ScopedSpan span(compute_.recorder, "row_need", report::Kind::compute);
  const TensorView here(static_cast<void*>(here_.data()), DType::fp32, {rows_, lse.size(1)});
  compute_.backend.row_need({here, always, lse, rows, growth, of_rows()}, compute_.stream);
  known_ = true;
}

}  // namespace pecia::attention
