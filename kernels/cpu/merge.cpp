// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/merge.hpp"

#include <algorithm>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/shared/parallel.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/merge.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/shared/exp-inl.hpp"
#include "kernels/cpu/shared/widen-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace pecia::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// out = out · a + part · b
template <class Stored>
HWY_INLINE void blend(float* out, const Stored* part, float a, float b, int64_t count) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto scaled = hn::Mul(load_wide(d, part + i), hn::Set(d, b));
    hn::StoreU(hn::MulAdd(hn::LoadU(d, out + i), hn::Set(d, a), scaled), d, out + i);
  }
  for (; i < count; ++i) out[i] = out[i] * a + widen_one(part[i]) * b;
}

using Wide = hn::ScalableTag<float>;
using Vector = hn::Vec<Wide>;
constexpr int64_t lanes = hn::MaxLanes(Wide());

/// Returns log(1 + x) for 0 ≤ x ≤ 1, within 4 units in the last place. NaN stays NaN. With
/// s = x / (2 + x) it is 2 · artanh(s), and what the series leaves out is below 2e-8 of it.
HWY_INLINE Vector log1p_of_share(Vector x) {
  const Wide d;
  const auto s = hn::Div(x, hn::Add(hn::Set(d, 2.0f), x));
  const auto z = hn::Mul(s, s);
  auto p = hn::Set(d, 1.0f / 13);
  for (const float term : {1.0f / 11, 1.0f / 9, 1.0f / 7, 1.0f / 5, 1.0f / 3})
    p = hn::MulAdd(p, z, hn::Set(d, term));
  const auto twice = hn::Add(s, s);
  return hn::MulAdd(hn::Mul(twice, z), p, twice);
}

/// What each of `lanes` rows and its part weigh, and the log of the sum of their exponentials.
struct Shares {
  alignas(64) float row[lanes], part[lanes], lse[lanes];
};

/// With x = exp(−|lse − part_lse|) the larger share is 1 / (1 + x), the smaller x / (1 + x).
HWY_INLINE void find_shares(const float* lse, const float* part_lse, Shares& shares) {
  const Wide d;
  const auto of_row = hn::LoadU(d, lse), of_part = hn::LoadU(d, part_lse);
  const auto x = exp_nonpositive(d, hn::Neg(hn::Abs(hn::Sub(of_row, of_part))));
  const auto one = hn::Set(d, 1.0f);
  const auto larger = hn::Div(one, hn::Add(one, x)), smaller = hn::Mul(x, larger);
  const auto part_larger = hn::Gt(of_part, of_row);
  hn::Store(hn::IfThenElse(part_larger, smaller, larger), d, shares.row);
  hn::Store(hn::IfThenElse(part_larger, larger, smaller), d, shares.part);
  hn::Store(hn::Add(hn::Max(of_row, of_part), log1p_of_share(x)), d, shares.lse);
}

/// Every row is a lane of its own, so its bits do not depend on the rows beside it.
template <class Stored>
HWY_INLINE void merge_rows(const PartOfRows& into, const Stored* part_out, const float* of_part,
                           int64_t rows, int64_t width) {
  Shares shares;
  float lse[lanes], part_lse[lanes];
  for (int64_t first = 0; first < rows; first += lanes) {
    const int64_t count = std::min(lanes, rows - first);
    std::fill(std::copy_n(into.lse + first, count, lse), lse + lanes, 0.0f);
    std::fill(std::copy_n(of_part + first, count, part_lse), part_lse + lanes, 0.0f);
    find_shares(lse, part_lse, shares);
    for (int64_t i = 0; i < count; ++i) {
      if (part_lse[i] == empty_lse) continue;
      float* const out = into.out + (first + i) * width;
      const Stored* const from = part_out + (first + i) * width;
      if (lse[i] == empty_lse) {
        widen_row(from, width, out);
        into.lse[first + i] = part_lse[i];
        continue;
      }
      blend(out, from, shares.row[i], shares.part[i], width);
      into.lse[first + i] = shares.lse[i];
    }
  }
}

void MergeParts(const PartOfRows& into, const PartOfRows& part, int64_t rows, int64_t width) {
  merge_rows(into, part.out, part.lse, rows, width);
}

void MergeRows(const MergeArgs& args, int64_t begin, int64_t end) {
  const int64_t heads = args.out.size(1), head_dim = args.out.size(2);
  for (int64_t p = begin; p < end; ++p) {
    const int64_t r = args.rows.empty() ? p : args.rows[p];
    const PartOfRows into{static_cast<float*>(args.out.row(r)),
                          static_cast<float*>(args.lse.row(r))};
    const auto* const part_lse = static_cast<const float*>(args.part_lse.row(p));
    if (args.part_out.dtype() == DType::bf16)
      merge_rows(into, static_cast<const bfloat16_t*>(args.part_out.row(p)), part_lse, heads,
                 head_dim);
    else
      merge_rows(into, static_cast<const float*>(args.part_out.row(p)), part_lse, heads, head_dim);
  }
}

/// Parts [begin, end).
void MergePicked(const MergePickedArgs& args, const PickedParts& parts, int64_t begin,
                 int64_t end) {
  const int64_t heads = parts.lse.size(1), head_dim = args.out.size(2);
  for (int64_t p = begin; p < end; ++p) {
    const int64_t r = parts.rows.as<int32_t>()[p];
    const PartOfRows into{static_cast<float*>(args.out.row(r)) + parts.first_head * head_dim,
                          static_cast<float*>(args.lse.row(r)) + parts.first_head};
    const auto* const lse = static_cast<const float*>(parts.lse.row(p));
    if (parts.out.dtype() == DType::bf16)
      merge_rows(into, static_cast<const bfloat16_t*>(parts.out.row(p)), lse, heads, head_dim);
    else
      merge_rows(into, static_cast<const float*>(parts.out.row(p)), lse, heads, head_dim);
  }
}

}  // namespace pecia::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pecia::kernels::cpu {
HWY_EXPORT(MergeRows);
HWY_EXPORT(MergeParts);
HWY_EXPORT(MergePicked);

void merge_parts(const PartOfRows& into, const PartOfRows& part, int64_t rows, int64_t width) {
  HWY_DYNAMIC_DISPATCH(MergeParts)(into, part, rows, width);
}

void merge(const MergeArgs& args, const device::Stream& stream) {
  for_each_range(stream, args.part_out.rows(), rows_per_task(args.out.row_elements()),
                 [&](int64_t begin, int64_t end) {
                   HWY_DYNAMIC_DISPATCH(MergeRows)(args, begin, end);
                 });
}

void merge_picked(const MergePickedArgs& args, const device::Stream& stream) {
  for (const PickedParts& parts : args.parts)
    for_each_range(stream, parts.out.rows(), rows_per_task(parts.out.row_elements()),
                   [&](int64_t begin, int64_t end) {
                     HWY_DYNAMIC_DISPATCH(MergePicked)(args, parts, begin, end);
                   });
}

}  // namespace pecia::kernels::cpu
#endif  // HWY_ONCE
