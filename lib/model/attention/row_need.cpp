// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/row_need.hpp"

#include <algorithm>
#include <cmath>

namespace pecia::attention {

using report::Kind;
using report::ScopedSpan;

RowNeed::RowNeed(const Compute& compute)
    : compute_(compute),
      here_(compute.device, device::Memory::pinned),
      always_(compute.device, device::Memory::pinned),
      all_(compute.device, device::Memory::pinned) {}

void RowNeed::begin_pass(int64_t rows) {
  known_ = false;
  need_.assign(rows, 0.0f);
}

void RowNeed::read(const TensorView& lse, device::Buffer& into) const {
  const int64_t sums = lse.elements(), bytes = sums * size_of(DType::fp32);
  if (into.bytes() < bytes) {
    into.reserve(bytes);
    std::fill_n(into.as<float>(), sums, 0.0f);  // a phantom's copies bring nothing
  }
  compute_.device.copy(into.data(), lse.data(), bytes, compute_.stream);
}

void RowNeed::attended_here(const TensorView& lse) {
  groups_.clear();
  read(lse, here_);
}

void RowNeed::attended_always(const TensorView& lse, std::span<const int64_t> groups) {
  groups_.assign(groups.begin(), groups.end());
  group_heads_ = lse.size(1);
  read(lse, always_);
}

void RowNeed::learn(const TensorView& lse, std::span<const int64_t> rows) {
  read(lse, all_);
  const ScopedSpan span(compute_.recorder, "row_need", Kind::compute);
  compute_.stream.synchronize();
  const int64_t heads = lse.size(1);
  float* const here = here_.as<float>();
  const float *const always = always_.as<float>(), *const all = all_.as<float>();
  for (size_t i = 0; i < groups_.size(); ++i)
    for (int64_t head = 0; head < group_heads_; ++head) {
      float& sum = here[groups_[i] * group_heads_ + head];
      const float other = always[static_cast<int64_t>(i) * group_heads_ + head];
      const float most = std::max(sum, other);
      sum = most + std::log1p(std::exp(std::min(sum, other) - most));
    }
  for (float& need : need_) need *= growth;
  for (const int64_t row : rows) {
    float need = 0;
    for (int64_t i = row * heads; i < (row + 1) * heads; ++i)
      need = std::max(need, -std::expm1(here[i] - all[i]));  // never NaN
    need_[row] = need;
  }
  known_ = true;
}

}  // namespace pecia::attention
