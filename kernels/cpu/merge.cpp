// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/merge.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/shared/parallel.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/merge.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace pecia::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// out = out · a + part · b
HWY_INLINE void blend(float* out, const float* part, float a, float b, int64_t count) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto scaled = hn::Mul(hn::LoadU(d, part + i), hn::Set(d, b));
    hn::StoreU(hn::MulAdd(hn::LoadU(d, out + i), hn::Set(d, a), scaled), d, out + i);
  }
  for (; i < count; ++i) out[i] = out[i] * a + part[i] * b;
}

/// With x = exp(−|lse − part_lse|) the larger share is 1 / (1 + x), the smaller x / (1 + x).
HWY_INLINE void merge_head(float* out, float& lse, const float* part, float part_lse,
                           int64_t count) {
  if (part_lse == empty_lse) return;
  if (lse == empty_lse) {
    std::copy_n(part, count, out);
    lse = part_lse;
    return;
  }
  const float x = std::exp(-std::fabs(lse - part_lse));
  const float larger = 1.0f / (1.0f + x), smaller = x / (1.0f + x);
  const bool part_larger = part_lse > lse;
  blend(out, part, part_larger ? smaller : larger, part_larger ? larger : smaller, count);
  lse = std::max(lse, part_lse) + std::log1p(x);
}

void MergeRows(const MergeArgs& args, int64_t begin, int64_t end) {
  const int64_t heads = args.out.size(1), head_dim = args.out.size(2);
  for (int64_t p = begin; p < end; ++p) {
    const int64_t r = args.rows.empty() ? p : args.rows[p];
    for (int64_t h = 0; h < heads; ++h)
      merge_head(static_cast<float*>(args.out.row(r)) + h * head_dim,
                 static_cast<float*>(args.lse.row(r))[h],
                 static_cast<const float*>(args.part_out.row(p)) + h * head_dim,
                 static_cast<const float*>(args.part_lse.row(p))[h], head_dim);
  }
}

void MergeParts(const PartOfRows& into, const PartOfRows& part, int64_t rows, int64_t width) {
  for (int64_t r = 0; r < rows; ++r)
    merge_head(into.out + r * width, into.lse[r], part.out + r * width, part.lse[r], width);
}

}  // namespace pecia::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pecia::kernels::cpu {
HWY_EXPORT(MergeRows);
HWY_EXPORT(MergeParts);

void merge_parts(const PartOfRows& into, const PartOfRows& part, int64_t rows, int64_t width) {
  HWY_DYNAMIC_DISPATCH(MergeParts)(into, part, rows, width);
}

void merge(const MergeArgs& args, const device::Stream& stream) {
  for_each_range(stream, args.part_out.rows(), rows_per_task(args.out.row_elements()),
                 [&](int64_t begin, int64_t end) {
                   HWY_DYNAMIC_DISPATCH(MergeRows)(args, begin, end);
                 });
}

}  // namespace pecia::kernels::cpu
#endif  // HWY_ONCE
