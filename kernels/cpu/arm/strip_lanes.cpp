// SPDX-License-Identifier: Apache-2.0
/// The steps that are taken for every chunk of keys, in vectors. The others are rare, or loops that the
/// compiler turns into vectors, and come from plain_lanes().

#include "kernels/cpu/attention/strip_lanes.hpp"

#include <algorithm>

#include "kernels/cpu/arm/vectors.hpp"
#include "kernels/cpu/arm/weigher.hpp"

namespace pecia::kernels::cpu {
namespace {

constexpr int64_t quad_lanes = 4;

/// Four lanes of a chunk.
template <bool kAll>
uint32_t weigh_quad(const Weigher& weigher, const ChunkScores& chunk, int64_t lanes, int64_t lane,
                    const float* maxima, uint16_t* weights, float* sums) {
  const float32x4_t shift =
      vsubq_f32(vdupq_n_f32(units_shift + weight_one), vld1q_f32(maxima + lane));
  const uint32x4_t bits = vshlq_u32(
      vdupq_n_u32(1), vaddq_s32(vdupq_n_s32(static_cast<int>(lane)), int32x4_t{0, 1, 2, 3}));
  float32x4_t sum = vld1q_f32(sums + lane);
  uint16x8_t most = vdupq_n_u16(0);
  const auto shifted = [&](int64_t key) {
    return vfmaq_n_f32(shift, vld1q_f32(chunk.scores + key * lanes + lane), chunk.scales[key]);
  };
  const auto seen = [&](int64_t key) {
    return vtstq_u32(vdupq_n_u32((*chunk.visible)[key]), bits);
  };
  for (int64_t key = 0; key < chunk_keys; key += 2) {
    uint16x8_t units = Weigher::units(shifted(key), shifted(key + 1));  // of each key four lanes
    if constexpr (!kAll)
      units = vandq_u16(units, vmovn_high_u32(vmovn_u32(seen(key)), seen(key + 1)));
    most = vmaxq_u16(most, units);
    const uint16x8_t weight = weigher.corrected(units), summands = Weigher::summands(weight);
    sum = vaddq_f32(vaddq_f32(sum, wide_high(summands)), wide_low(summands));
    const uint16x8_t other = vextq_u16(weight, weight, 4);
    vst1q_u16(weights + (key / 2 * lanes + lane) * 2, vzip1q_u16(weight, other));
  }
  vst1q_f32(sums + lane, sum);
  const uint16x4_t most_of_lanes = vmax_u16(vget_low_u16(most), vget_high_u16(most));
  const uint16x4_t exceeding = vcgt_u16(most_of_lanes, vdup_n_u16(most_weight));
  return vaddvq_u32(
      vandq_u32(bits, vreinterpretq_u32_s32(vmovl_s16(vreinterpret_s16_u16(exceeding)))));
}

template <int kHalves, bool kAll>
uint32_t weigh_chunk(const ChunkScores& chunk, const float* maxima, uint16_t* weights,
                     float* sums) {
  constexpr int64_t lanes = kHalves * half_lanes;
  const Weigher weigher;
  uint32_t exceeding = 0;
  for (int64_t lane = 0; lane < lanes; lane += quad_lanes)
    exceeding |= weigh_quad<kAll>(weigher, chunk, lanes, lane, maxima, weights, sums);
  return exceeding;
}

template <int kHalves>
uint32_t weigh(const ChunkScores& chunk, const float* maxima, uint16_t* weights, float* sums) {
  return chunk.visible == nullptr ? weigh_chunk<kHalves, true>(chunk, maxima, weights, sums)
                                  : weigh_chunk<kHalves, false>(chunk, maxima, weights, sums);
}

/// Eight elements of eight rows become eight of each column.
inline void transpose_eight(uint16x8_t (&v)[8]) {
  uint16x8_t t[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    t[i] = vtrn1q_u16(v[i], v[i + 1]);
    t[i + 1] = vtrn2q_u16(v[i], v[i + 1]);
  }
  uint32x4_t w[8];
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4)
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const auto a = vreinterpretq_u32_u16(t[i + j]), b = vreinterpretq_u32_u16(t[i + j + 2]);
      w[i + j] = vtrn1q_u32(a, b);
      w[i + j + 2] = vtrn2q_u32(a, b);
    }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const auto a = vreinterpretq_u64_u32(w[i]), b = vreinterpretq_u64_u32(w[i + 4]);
    v[i] = vreinterpretq_u16_u64(vtrn1q_u64(a, b));
    v[i + 4] = vreinterpretq_u16_u64(vtrn2q_u64(a, b));
  }
}

void pack_values(const PackValues& args) {
  const auto ahead = args.ahead * static_cast<int64_t>(sizeof(uint16_t));
  for (int64_t key = 0; key < chunk_keys; key += 8)
    for (int64_t d = 0; d < args.dims; d += 8) {
      uint16x8_t v[8];
#pragma GCC unroll 8
      for (int64_t r = 0; r < 8; ++r) {
        const uint16_t* const from = args.rows + (key + r) * args.row_stride + d;
        if (ahead != 0 && d % 32 == 0) ask_for(from, ahead);
        uint16_t some[8] = {};
        const int64_t count = std::min<int64_t>(8, args.width - d);
        if (key + r >= args.keys || count <= 0) {
          v[r] = vdupq_n_u16(0);
        } else if (count == 8) {
          v[r] = vld1q_u16(from);
        } else {
          std::copy_n(from, count, some);
          v[r] = vld1q_u16(some);
        }
      }
      transpose_eight(v);
#pragma GCC unroll 8
      for (int64_t r = 0; r < 8; ++r) vst1q_u16(args.packed + (d + r) * chunk_keys + key, v[r]);
    }
}

}  // namespace

const Lanes& vector_lanes() {
  static const Lanes lanes = [] {
    Lanes made = plain_lanes();
    made.one_half.weigh = weigh<1>;
    made.two_halves.weigh = weigh<2>;
    made.pack_values = pack_values;
    return made;
  }();
  return lanes;
}

}  // namespace pecia::kernels::cpu
