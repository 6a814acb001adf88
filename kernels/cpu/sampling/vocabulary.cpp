// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/sampling/vocabulary.hpp"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sampling/vocabulary.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/shared/exp-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace pecia::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

int64_t ArgMax(const float* values, int64_t count) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d);
  float maximum = values[0];
  int64_t i = 0;
  if (count >= lanes) {
    auto best = hn::LoadU(d, values);
    for (i = lanes; i + lanes <= count; i += lanes) best = hn::Max(best, hn::LoadU(d, values + i));
    maximum = hn::GetLane(hn::MaxOfLanes(d, best));
  }
  for (; i < count; ++i) maximum = std::max(maximum, values[i]);
  return std::find(values, values + count, maximum) - values;
}

double SumExp(const float* values, int64_t count, float maximum, float factor) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d);
  const auto shift = hn::Set(d, maximum), scale = hn::Set(d, factor);
  double sum = 0;
  for (int64_t begin = 0; begin < count; begin += 1024) {
    const int64_t end = std::min(count, begin + 1024);
    auto piece = hn::Zero(d);
    int64_t i = begin;
    for (; i + lanes <= end; i += lanes)
      piece = hn::Add(piece,
                      exp_nonpositive(d, hn::Mul(hn::Sub(hn::LoadU(d, values + i), shift), scale)));
    sum += hn::GetLane(hn::SumOfLanes(d, piece));
    for (; i < end; ++i) sum += std::exp((values[i] - maximum) * factor);
  }
  return sum;
}

}  // namespace pecia::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pecia::kernels::cpu {
HWY_EXPORT(ArgMax);
HWY_EXPORT(SumExp);

int64_t argmax(const float* values, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(ArgMax)(values, count);
}

double sum_exp(const float* values, int64_t count, float maximum, float factor) {
  return HWY_DYNAMIC_DISPATCH(SumExp)(values, count, maximum, factor);
}

}  // namespace pecia::kernels::cpu
#endif  // HWY_ONCE
