// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "kernels/api/attention.hpp"
#include "kernels/cpu/attention/strip_lanes.hpp"
#include "lib/base/core/dtype.hpp"

namespace pecia::kernels::cpu {
namespace {

/// Units of a score as an integer that saturates like the vectors' arithmetic: modulo 2^32 first,
/// and then to 16 bits without a sign.
uint16_t to_units(float score, float scale, float shift) {
  const float shifted = std::fma(score, scale, shift);
  const uint32_t wrapped = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(units_shift);
  return static_cast<uint16_t>(std::clamp(static_cast<int32_t>(wrapped), 0, 0xffff));
}

uint16_t corrected(uint16_t units) {
  return static_cast<uint16_t>(units - excess_of_line().bytes[units / 2 % 64]);
}

/// As a product with 1 takes it: denormals are 0.
float summand(uint16_t weight) {
  return (weight & 0x7f80) == 0 ? 0.0f : bf16_to_float(weight);
}

bool sees(const Visible* visible, int64_t key, int64_t lane) {
  return visible == nullptr || ((*visible)[key] >> lane & 1) != 0;
}

}  // namespace

ExcessOfLine::ExcessOfLine() {
  for (int i = 0; i < 64; ++i) {
    const double f = (2 * i + 0.5) / 128;
    // Rounding up from 0.52 on leaves weights 1e-4 too small on average, and from 0.5 on 3e-4.
    bytes[i] = static_cast<uint8_t>(std::floor(128 * (1 + f - std::exp2(f)) + 0.48));
  }
}

const ExcessOfLine& excess_of_line() {
  static const ExcessOfLine excess;
  return excess;
}

float SumOfRow::lse() const {
  if (empty()) return empty_lse;
  return static_cast<float>(maximum / power_units * std::numbers::ln2 + std::log(sum));
}

SumOfRow sum_of_lse(float lse) {
  if (lse == empty_lse) return {no_maximum, 0.0f};
  const double power = lse * std::numbers::log2e;
  return {static_cast<float>(std::ceil(power)) * power_units,
          static_cast<float>(std::exp2(power - std::ceil(power)))};
}

float units_of_score(float scale) {
  return scale * std::numbers::log2e_v<float> * power_units;
}

namespace {

/// See StripSteps.
struct PlainLanes {
  template <int kHalves>
  static void pack(const PackQueries& args) {
    constexpr int64_t lanes = kHalves * half_lanes;
    for (int64_t lane = 0; lane < lanes; ++lane)
      for (int64_t d = 0; d < args.dims; ++d)
        args.packed[(d / 2 * lanes + lane) * 2 + d % 2] = args.rows[lane * args.dims + d];
  }

  static void pack_values(const PackValues& args) {
    for (int64_t d = 0; d < args.dims; ++d)
      for (int64_t key = 0; key < chunk_keys; ++key)
        args.packed[d * chunk_keys + key] =
            d < args.width && key < args.keys ? args.rows[key * args.row_stride + d] : 0;
  }

  template <int kHalves>
  static void see(const Positions& positions, Visible& visible) {
    visible.fill(0);
    for (int64_t key = 0; key < positions.num_keys; ++key)
      for (int64_t lane = 0; lane < kHalves * half_lanes; ++lane) {
        const int64_t distance = positions.queries[lane] - positions.keys[key];
        const bool seen = distance >= 0 && distance < positions.reaches[lane];
        visible[key] |= static_cast<uint32_t>(seen) << lane;
      }
  }

  template <int kHalves>
  static uint32_t weigh(const ChunkScores& chunk, const float* maxima, uint16_t* weights,
                        float* sums) {
    constexpr int64_t lanes = kHalves * half_lanes;
    uint32_t exceeding = 0;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const float shift = (units_shift + weight_one) - maxima[lane];
      uint16_t most = 0;
      float sum = sums[lane];
      for (int64_t key = 0; key < chunk_keys; key += 2) {
        uint16_t* const pair = weights + (key / 2 * lanes + lane) * 2;
        for (int64_t i = 0; i < 2; ++i) {
          const uint16_t units =
              sees(chunk.visible, key + i, lane)
                  ? to_units(chunk.scores[(key + i) * lanes + lane], chunk.scales[key + i], shift)
                  : 0;
          most = std::max(most, units);
          pair[i] = corrected(units);
        }
        sum = sum + summand(pair[1]);
        sum = sum + summand(pair[0]);
      }
      sums[lane] = sum;
      exceeding |= static_cast<uint32_t>(most > most_weight) << lane;
    }
    return exceeding;
  }

  template <int kHalves>
  static void find_highest(const ChunkScores& chunk, float* highest) {
    constexpr int64_t lanes = kHalves * half_lanes;
    for (int64_t key = 0; key < chunk_keys; ++key)
      for (int64_t lane = 0; lane < lanes; ++lane) {
        float& score = chunk.scores[key * lanes + lane];
        const float units = score * chunk.scales[key];
        if (units > most_units) score = most_units / chunk.scales[key];
        if (units < -most_units) score = -most_units / chunk.scales[key];
        if (sees(chunk.visible, key, lane))
          highest[lane] =
              std::max(highest[lane], std::min(most_units, std::max(-most_units, units)));
      }
  }

  template <int kHalves>
  static void raise(const float* highest, uint32_t some, const StripRows& rows) {
    constexpr int64_t lanes = kHalves * half_lanes;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      if ((some >> lane & 1) == 0) continue;
      const float power = std::ceil(highest[lane] / power_units);
      const float maximum = std::max(rows.maxima[lane], power * power_units);
      if (maximum == rows.maxima[lane]) continue;
      const float factor = std::exp2((rows.maxima[lane] - maximum) / power_units);
      rows.maxima[lane] = maximum;
      rows.sums[lane] *= factor;
      for (int64_t d = 0; d < rows.dims; ++d) rows.out[d * lanes + lane] *= factor;
    }
  }

  template <int kHalves>
  static void write(const StripRows& rows, const RowsOfLanes& to) {
    for (int64_t lane = 0; lane < to.count; ++lane)
      for (int64_t d = 0; d < to.width; ++d)
        to.rows[lane][d] = rows.out[d * kHalves * half_lanes + lane] / to.numbers[lane];
  }

  template <int kHalves>
  static void read(const StripRows& rows, const RowsOfLanes& from) {
    for (int64_t lane = 0; lane < from.count; ++lane)
      for (int64_t d = 0; d < from.width; ++d)
        rows.out[d * kHalves * half_lanes + lane] = from.rows[lane][d] * from.numbers[lane];
  }
};

}  // namespace

const Lanes& plain_lanes() {
  static constexpr Lanes lanes = lanes_of<PlainLanes>();
  return lanes;
}

}  // namespace pecia::kernels::cpu
