// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/row_weights.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/arm/vectors.hpp"
#include "kernels/cpu/arm/weigher.hpp"

namespace pecia::kernels::cpu {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

inline uint32x4_t keys_that_are_seen(float32x4_t scores) {
  return vmvnq_u32(vceqq_f32(scores, vdupq_n_f32(-infinity)));
}

/// The highest score of keys that are seen, in units within the range, or no_maximum. NaN counts as
/// the least.
float find_highest(const RowScores& row, int64_t begin, int64_t end) {
  const float32x4_t most = vdupq_n_f32(most_units), least = vdupq_n_f32(-most_units);
  float32x4_t found = vdupq_n_f32(no_maximum);
  for (int64_t key = begin; key < end; key += 4) {
    const float32x4_t score = vld1q_f32(row.scores + key);
    const float32x4_t units = vmulq_f32(score, vld1q_f32(row.scales + key));
    const float32x4_t bounded = vminnmq_f32(vmaxnmq_f32(units, least), most);
    found = vbslq_f32(keys_that_are_seen(score), vmaxq_f32(found, bounded), found);
  }
  return vmaxvq_f32(found);
}

void raise(float highest, const RowState& state) {
  const float maximum = std::max(*state.maximum, std::ceil(highest / power_units) * power_units);
  if (maximum == *state.maximum) return;
  const float factor = std::exp2((*state.maximum - maximum) / power_units);
  *state.maximum = maximum;
  *state.sum *= factor;
  for (int64_t i = 0; i < state.width; ++i) state.out[i] *= factor;
}

/// Returns whether a weight exceeds most_weight or is NaN.
bool weigh(const RowScores& row, float maximum, uint16_t* weights) {
  const Weigher weigher;
  const float32x4_t shift = vdupq_n_f32(units_shift + weight_one - maximum);
  uint16x8_t most = vdupq_n_u16(0);
  for (int64_t key = 0; key < row.keys; key += 8) {
    const float32x4_t low = vld1q_f32(row.scores + key), high = vld1q_f32(row.scores + key + 4);
    // What is below 0 becomes 0, and NaN stays.
    const auto shifted = [&](float32x4_t scores, int64_t first) {
      return vmaxq_f32(vdupq_n_f32(0), vfmaq_f32(shift, scores, vld1q_f32(row.scales + first)));
    };
    const uint16x8_t seen =
        vmovn_high_u32(vmovn_u32(keys_that_are_seen(low)), keys_that_are_seen(high));
    const uint16x8_t units =
        vandq_u16(seen, Weigher::units(shifted(low, key), shifted(high, key + 4)));
    most = vmaxq_u16(most, units);
    vst1q_u16(weights + key, weigher.corrected(units));
  }
  return vmaxvq_u16(most) > most_weight;
}

}  // namespace

void weigh_row(const RowScores& row, const RowState& state, uint16_t* weights) {
  for (int64_t key = 0; key < row.keys && *state.maximum == no_maximum; key += chunk_keys)
    raise(find_highest(row, key, key + chunk_keys), state);
  if (!weigh(row, *state.maximum, weights)) return;
  raise(find_highest(row, 0, row.keys), state);
  weigh(row, *state.maximum, weights);
}

/// Four rows at a time, whose sums do not wait for each other. The second of a pair comes first, as
/// in a strip.
void add_weights(const WeightRows& rows, float* sums) {
  constexpr int64_t together = 4;
  for (int64_t first = 0; first < rows.rows; first += together) {
    const int64_t count = std::min(together, rows.rows - first);
    const uint16_t* from[together];
    float copy[together] = {};
    for (int64_t r = 0; r < together; ++r)
      from[r] = rows.weights + (first + std::min(r, count - 1)) * rows.stride;
    std::copy_n(sums + first, count, copy);
    float32x4_t sum = vld1q_f32(copy);
    for (int64_t key = 0; key < rows.keys; key += 8) {
      uint32x4_t pairs[together];  // of two keys of a row
      for (int64_t r = 0; r < together; ++r)
        pairs[r] = vreinterpretq_u32_u16(Weigher::summands(vld1q_u16(from[r] + key)));
      const auto a = vreinterpretq_u64_u32(vtrn1q_u32(pairs[0], pairs[1]));
      const auto b = vreinterpretq_u64_u32(vtrn1q_u32(pairs[2], pairs[3]));
      const auto c = vreinterpretq_u64_u32(vtrn2q_u32(pairs[0], pairs[1]));
      const auto d = vreinterpretq_u64_u32(vtrn2q_u32(pairs[2], pairs[3]));
      for (const uint64x2_t of_rows :
           {vzip1q_u64(a, b), vzip1q_u64(c, d), vzip2q_u64(a, b), vzip2q_u64(c, d)}) {
        const uint32x4_t pair = vreinterpretq_u32_u64(of_rows);
        sum = vaddq_f32(sum, vreinterpretq_f32_u32(vandq_u32(pair, vdupq_n_u32(0xffff0000))));
        sum = vaddq_f32(sum, vreinterpretq_f32_u32(vshlq_n_u32(pair, 16)));
      }
    }
    vst1q_f32(copy, sum);
    std::copy_n(copy, count, sums + first);
  }
}

PECIA_BF16_CODE void multiply_weights(const WeightRows& rows, const float* factors) {
  for (int64_t r = 0; r < rows.rows; ++r)
    for (int64_t key = 0; key < rows.keys; key += 8) {
      uint16_t* const at = rows.weights + r * rows.stride + key;
      const uint16x8_t weights = vld1q_u16(at);
      const float32x4_t low = vmulq_f32(wide_low(weights), vld1q_f32(factors + key));
      const float32x4_t high = vmulq_f32(wide_high(weights), vld1q_f32(factors + key + 4));
      vst1q_u16(at, vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(low), high)));
    }
}

}  // namespace pecia::kernels::cpu
