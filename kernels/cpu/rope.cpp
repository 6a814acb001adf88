// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "kernels/cpu/attention/softmax.hpp"
#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/products/bf16_native.hpp"
#include "kernels/cpu/shared/parallel.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace pecia::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Turns (a, b) by the angle whose cosine and sine are given.
template <class V>
HWY_INLINE void turn(V& a, V& b, V cos, V sin) {
  const V turned = hn::MulSub(a, cos, hn::Mul(b, sin));
  b = hn::MulAdd(b, cos, hn::Mul(a, sin));
  a = turned;
}

HWY_INLINE void turn_one(float& a, float& b, float cos, float sin) {
  const float turned = a * cos - b * sin;
  b = b * cos + a * sin;
  a = turned;
}

HWY_INLINE void rope_halves(float* head, const float* cos, const float* sin, int64_t half) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d);
  int64_t i = 0;
  for (; i + lanes <= half; i += lanes) {
    auto a = hn::LoadU(d, head + i), b = hn::LoadU(d, head + half + i);
    turn(a, b, hn::LoadU(d, cos + i), hn::LoadU(d, sin + i));
    hn::StoreU(a, d, head + i);
    hn::StoreU(b, d, head + half + i);
  }
  for (; i < half; ++i) turn_one(head[i], head[half + i], cos[i], sin[i]);
}

HWY_INLINE void rope_interleaved(float* head, const float* cos, const float* sin, int64_t half) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d);
  int64_t i = 0;
  for (; i + lanes <= half; i += lanes) {
    hn::Vec<decltype(d)> a, b;
    hn::LoadInterleaved2(d, head + 2 * i, a, b);
    turn(a, b, hn::LoadU(d, cos + i), hn::LoadU(d, sin + i));
    hn::StoreInterleaved2(a, b, d, head + 2 * i);
  }
  for (; i < half; ++i) turn_one(head[2 * i], head[2 * i + 1], cos[i], sin[i]);
}

/// Rotates in the output; narrow outputs are rotated in fp32 scratch first.
void RopeRows(const RopeArgs& args, int64_t begin, int64_t end) {
  const int64_t heads = args.x.size(1), head_dim = args.x.size(2), half = args.cos.size(1);
  const bool rounds = args.out.dtype() == DType::bf16;
  std::vector<float> wide(rounds ? heads * head_dim : 0);
  for (int64_t t = begin; t < end; ++t) {
    const auto* cos = static_cast<const float*>(args.cos.row(t));
    const auto* sin = static_cast<const float*>(args.sin.row(t));
    const auto* x = static_cast<const float*>(args.x.row(t));
    auto* const turned = rounds ? wide.data() : static_cast<float*>(args.out.row(t));
    if (turned != x) std::copy_n(x, heads * head_dim, turned);
    for (int64_t h = 0; h < heads; ++h) {
      float* const rotated = turned + h * head_dim + args.first;
      if (args.pairs == RopePairs::halves)
        rope_halves(rotated, cos, sin, half);
      else
        rope_interleaved(rotated, cos, sin, half);
    }
    if (args.scale) scale_row(turned, args.scale.as<float>()[t], heads * head_dim, turned);
    if (rounds)
      store_bf16_native(turned, heads * head_dim, static_cast<uint16_t*>(args.out.row(t)));
  }
}

}  // namespace pecia::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pecia::kernels::cpu {
HWY_EXPORT(RopeRows);

void rope(const RopeArgs& args, const device::Stream& stream) {
  for_each_range(stream, args.x.rows(), rows_per_task(args.x.row_elements()),
                 [&](int64_t begin, int64_t end) {
                   HWY_DYNAMIC_DISPATCH(RopeRows)(args, begin, end);
                 });
}

}  // namespace pecia::kernels::cpu
#endif  // HWY_ONCE
