// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/softmax.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/softmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/shared/exp-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace pecia::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Wide = hn::ScalableTag<float>;
constexpr int64_t lanes = hn::MaxLanes(Wide());
constexpr float infinity = std::numeric_limits<float>::infinity();

void MaskScores(const ScoreBlock& block, int64_t group, const int64_t* query_positions,
                const int64_t* key_positions, Window window, float* scratch) {
  const Wide d;
  const int64_t padded = (block.keys + lanes - 1) / lanes * lanes;
  std::fill(scratch + block.keys, scratch + padded, -infinity);
  for (int64_t query = 0; query * group < block.rows; ++query) {
    const int64_t last = query_positions[query];
    const int64_t first = window.first_seen(last);
    for (int64_t j = 0; j < block.keys; ++j)
      scratch[j] = key_positions[j] <= last && key_positions[j] >= first ? infinity : -infinity;
    for (int64_t row = query * group; row < (query + 1) * group; ++row)
      for (int64_t j = 0; j < padded; j += lanes) {
        float* const scores = block.scores + row * block.stride + j;
        hn::StoreU(hn::Min(hn::LoadU(d, scores), hn::LoadU(d, scratch + j)), d, scores);
      }
  }
}

void ScaleColumns(const ScoreBlock& block, const float* factors) {
  const Wide d;
  for (int64_t row = 0; row < block.rows; ++row) {
    float* const scores = block.scores + row * block.stride;
    int64_t j = 0;
    for (; j + lanes <= block.keys; j += lanes)
      hn::StoreU(hn::Mul(hn::LoadU(d, scores + j), hn::LoadU(d, factors + j)), d, scores + j);
    for (; j < block.keys; ++j) scores[j] *= factors[j];
  }
}

void ScaleRow(const float* from, float factor, int64_t count, float* to) {
  const Wide d;
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::Mul(hn::LoadU(d, from + i), hn::Set(d, factor)), d, to + i);
  for (; i < count; ++i) to[i] = from[i] * factor;
}

HWY_INLINE float maximum_of(const float* scores, int64_t padded) {
  const Wide d;
  auto maximum = hn::LoadU(d, scores);
  for (int64_t j = lanes; j < padded; j += lanes)
    maximum = hn::Max(maximum, hn::LoadU(d, scores + j));
  return hn::GetLane(hn::MaxOfLanes(d, maximum));
}

HWY_INLINE float exponentials(float* scores, int64_t padded, float maximum) {
  const Wide d;
  const auto shift = hn::Set(d, maximum);
  auto sum = hn::Zero(d);
  for (int64_t j = 0; j < padded; j += lanes) {
    const auto weight = exp_nonpositive(d, hn::Sub(hn::LoadU(d, scores + j), shift));
    hn::StoreU(weight, d, scores + j);
    sum = hn::Add(sum, weight);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

void SoftmaxBlock(const ScoreBlock& block, const OnlineRows& state) {
  const int64_t padded = (block.keys + lanes - 1) / lanes * lanes;
  for (int64_t row = 0; row < block.rows; ++row) {
    float* const scores = block.scores + row * block.stride;
    std::fill(scores + block.keys, scores + padded, -infinity);
    const float before = state.maxima[row];
    const float maximum = std::max(before, maximum_of(scores, padded));
    if (maximum > before) {
      float* const out = state.out + row * state.out_stride;
      const float factor = std::exp(before - maximum);
      ScaleRow(out, factor, state.width, out);
      state.sums[row] *= factor;
      state.maxima[row] = maximum;
    }
    // Nothing seen yet: no shift makes these scores numbers, 0 makes their weights 0 (and NaN NaN).
    state.sums[row] += exponentials(scores, padded, maximum == -infinity ? 0.0f : maximum);
  }
}

}  // namespace pecia::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pecia::kernels::cpu {
HWY_EXPORT(MaskScores);
HWY_EXPORT(SoftmaxBlock);
HWY_EXPORT(ScaleColumns);
HWY_EXPORT(ScaleRow);

void mask_scores(const ScoreBlock& block, int64_t group, const int64_t* query_positions,
                 const int64_t* key_positions, Window window, float* scratch) {
  HWY_DYNAMIC_DISPATCH(MaskScores)(block, group, query_positions, key_positions, window, scratch);
}

void softmax_block(const ScoreBlock& block, const OnlineRows& state) {
  HWY_DYNAMIC_DISPATCH(SoftmaxBlock)(block, state);
}

void scale_columns(const ScoreBlock& block, const float* factors) {
  HWY_DYNAMIC_DISPATCH(ScaleColumns)(block, factors);
}

void scale_row(const float* from, float factor, int64_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(ScaleRow)(from, factor, count, to);
}

}  // namespace pecia::kernels::cpu
#endif  // HWY_ONCE
