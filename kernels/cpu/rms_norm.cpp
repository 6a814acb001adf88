// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/products/bf16_native.hpp"
#include "kernels/cpu/shared/parallel.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rms_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/shared/widen-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace pecia::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_INLINE float sum_of_squares(const float* x, int64_t width) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d);
  auto even = hn::Zero(d), odd = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= width; i += 2 * lanes) {
    const auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + lanes);
    even = hn::MulAdd(a, a, even);
    odd = hn::MulAdd(b, b, odd);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
  for (; i < width; ++i) sum += x[i] * x[i];
  return sum;
}

HWY_INLINE float sum_of_parts(const TensorView& squares, int64_t row) {
  const auto* parts = static_cast<const float*>(squares.row(row));
  float sum = 0;
  for (int64_t part = 0; part < squares.size(1); ++part) sum += parts[part];
  return sum;
}

template <class Stored>
HWY_INLINE void scale(const float* x, float factor, const Stored* weight, int64_t count,
                      float* out) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto scaled = hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor));
    hn::StoreU(hn::Mul(scaled, load_wide(d, weight + i)), d, out + i);
  }
  for (; i < count; ++i) out[i] = x[i] * factor * widen_one(weight[i]);
}

/// The same, rounded.
template <class Stored>
void scale_to_bf16(const float* x, float factor, const Stored* weight, int64_t count,
                   uint16_t* out) {
  constexpr int64_t piece = 256;
  HWY_ALIGN float wide[piece];
  for (int64_t i = 0; i < count; i += piece) {
    const int64_t some = std::min(piece, count - i);
    scale(x + i, factor, weight + i, some, wide);
    store_bf16_native(wide, some, out + i);
  }
}

template <class Stored>
HWY_INLINE void norm_rows(const RmsNormArgs& args, int64_t begin, int64_t end) {
  const int64_t width = args.x.size(1);
  const auto* weight = static_cast<const Stored*>(args.weight.data());
  for (int64_t row = begin; row < end; ++row) {
    const auto* x = static_cast<const float*>(args.x.row(row));
    const float mean = args.squares
                           ? sum_of_parts(args.squares, row) / static_cast<float>(args.whole_width)
                           : sum_of_squares(x, width) / static_cast<float>(width);
    if (args.marks && !std::isfinite(mean)) {
      int32_t& mark = static_cast<int32_t*>(args.marks.data())[row];
      if (mark == 0) mark = args.mark;
    }
    const float factor = 1.0f / std::sqrt(mean + args.eps);
    if (args.out.dtype() == DType::bf16)
      scale_to_bf16(x, factor, weight, width, static_cast<uint16_t*>(args.out.row(row)));
    else
      scale(x, factor, weight, width, static_cast<float*>(args.out.row(row)));
  }
}

void NormRows(const RmsNormArgs& args, int64_t begin, int64_t end) {
  with_stored_type(args.weight.dtype(), [&]<class Stored>(std::type_identity<Stored>) {
    norm_rows<Stored>(args, begin, end);
  });
}

}  // namespace pecia::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pecia::kernels::cpu {
HWY_EXPORT(NormRows);

void rms_norm(const RmsNormArgs& args, const device::Stream& stream) {
  for_each_range(stream, args.x.rows(), rows_per_task(args.x.size(1)),
                 [&](int64_t begin, int64_t end) {
                   HWY_DYNAMIC_DISPATCH(NormRows)(args, begin, end);
                 });
}

}  // namespace pecia::kernels::cpu
#endif  // HWY_ONCE
