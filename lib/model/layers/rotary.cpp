// SPDX-License-Identifier: Apache-2.0
#include "lib/model/layers/rotary.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <unordered_map>
#include <utility>

#include "lib/base/core/error.hpp"

namespace pecia::model {
namespace {

/// base^(2i/d) in fp32. pow is computed in double and rounded, so that the result does not depend
/// on the C library.
float power(float base, int64_t i, int64_t dim) {
  const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
  return static_cast<float>(std::pow(double{base}, double{exponent}));
}

std::vector<float> plain_frequencies(float base, int64_t dim) {
  std::vector<float> inverse(dim / 2);
  for (int64_t i = 0; i < dim / 2; ++i) inverse[i] = 1.0f / power(base, i, dim);
  return inverse;
}

/// Long wavelengths are stretched by the factor, short ones are kept, and those in between are
/// interpolated.
void scale_llama3(const RopeConfig& config, std::vector<float>& inverse) {
  const auto factor = static_cast<float>(config.factor);
  const auto length = static_cast<float>(config.original_max_positions);
  const auto low = static_cast<float>(config.low_freq_factor);
  const auto range = static_cast<float>(config.high_freq_factor - config.low_freq_factor);
  const auto longest_kept = static_cast<float>(static_cast<double>(config.original_max_positions) /
                                               config.high_freq_factor);
  const auto shortest_stretched = static_cast<float>(
      static_cast<double>(config.original_max_positions) / config.low_freq_factor);
  for (float& frequency : inverse) {
    const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
    if (wavelength < longest_kept) continue;
    if (wavelength > shortest_stretched) {
      frequency /= factor;
      continue;
    }
    if (range == 0) continue;  // nothing lies between
    const float smooth = (length / wavelength - low) / range;
    frequency = (1.0f - smooth) * frequency / factor + smooth * frequency;
  }
}

/// The dimension that makes `rotations` turns within the original length.
double yarn_dimension(const RopeConfig& config, double rotations) {
  const auto length = static_cast<double>(config.original_max_positions);
  return static_cast<double>(config.rotary_dim) *
         std::log(length / (rotations * 2 * std::numbers::pi)) / (2 * std::log(config.theta));
}

void scale_yarn(const RopeConfig& config, std::vector<float>& inverse) {
  double low = yarn_dimension(config, config.beta_fast);
  double high = yarn_dimension(config, config.beta_slow);
  if (config.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(config.rotary_dim - 1));
  if (low == high) high += 0.001;

  const auto base = static_cast<float>(config.theta), factor = static_cast<float>(config.factor);
  const auto start = static_cast<float>(low), range = static_cast<float>(high - low);
  for (size_t i = 0; i < inverse.size(); ++i) {
    const float wavelength = power(base, static_cast<int64_t>(i), config.rotary_dim);
    const float ramp = std::clamp((static_cast<float>(i) - start) / range, 0.0f, 1.0f);
    const float kept = 1.0f - ramp;
    inverse[i] = 1.0f / (factor * wavelength) * (1.0f - kept) + 1.0f / wavelength * kept;
  }
}

float yarn_attention_factor(const RopeConfig& config) {
  if (config.attention_factor) return static_cast<float>(*config.attention_factor);
  if (config.mscale && config.mscale_all_dim)
    return static_cast<float>(yarn_mscale(config.factor, *config.mscale) /
                              yarn_mscale(config.factor, *config.mscale_all_dim));
  return static_cast<float>(yarn_mscale(config.factor, 1.0));
}

/// longrope: 1 / (factor · wavelength).
std::vector<float> stretched(const RopeConfig& config, const std::vector<double>& factors) {
  std::vector<float> inverse(factors.size());
  for (size_t i = 0; i < factors.size(); ++i)
    inverse[i] =
        1.0f / (static_cast<float>(factors[i]) * power(static_cast<float>(config.theta),
                                                       static_cast<int64_t>(i), config.rotary_dim));
  return inverse;
}

float longrope_attention_factor(const RopeConfig& config) {
  if (config.attention_factor) return static_cast<float>(*config.attention_factor);
  if (config.factor <= 1.0) return 1.0f;
  const auto length = static_cast<double>(config.original_max_positions);
  return static_cast<float>(std::sqrt(1 + std::log(config.factor) / std::log(length)));
}

}  // namespace

Rotary::Rotary(RopeConfig config)
    : config_(std::move(config)),
      inverse_(plain_frequencies(static_cast<float>(config_.theta), config_.rotary_dim)) {
  switch (config_.scaling) {
    case RopeScaling::none:
    case RopeScaling::dynamic:
      break;
    case RopeScaling::proportional: {
      const double turning = config_.turning_share * static_cast<double>(config_.rotary_dim);
      std::fill(inverse_.begin() + static_cast<int64_t>(turning) / 2, inverse_.end(), 0.0f);
      [[fallthrough]];
    }
    case RopeScaling::linear:
      for (float& frequency : inverse_) frequency /= static_cast<float>(config_.factor);
      break;
    case RopeScaling::llama3:
      scale_llama3(config_, inverse_);
      break;
    case RopeScaling::yarn:
      scale_yarn(config_, inverse_);
      attention_factor_ = yarn_attention_factor(config_);
      break;
    case RopeScaling::longrope:
      inverse_ = stretched(config_, config_.short_factors);
      attention_factor_ = longrope_attention_factor(config_);
      break;
  }
}

/// Lengths with equal frequencies have the same; 0 is that of the plain ones.
int64_t Rotary::counted_length(int64_t length) const {
  if (length <= config_.original_max_positions) return 0;
  if (config_.scaling == RopeScaling::dynamic) return length;
  return config_.scaling == RopeScaling::longrope ? config_.original_max_positions + 1 : 0;
}

std::vector<float> Rotary::frequencies(int64_t length) const {
  if (counted_length(length) == 0) return inverse_;
  if (config_.scaling == RopeScaling::longrope) return stretched(config_, config_.long_factors);
  const auto factor = static_cast<float>(config_.factor);
  const auto dim = static_cast<double>(config_.rotary_dim);
  const float stretch =
      factor * static_cast<float>(length) / static_cast<float>(config_.original_max_positions) -
      static_cast<float>(config_.factor - 1.0);
  const auto exponent = static_cast<float>(dim / (dim - 2));
  const auto growth = static_cast<float>(std::pow(double{stretch}, double{exponent}));
  return plain_frequencies(static_cast<float>(config_.theta) * growth, config_.rotary_dim);
}

int64_t rope_length(RopeScaling scaling, int64_t position, int64_t prompt_end, int64_t longest) {
  const int64_t here = std::max(prompt_end, position + 1);
  return scaling == RopeScaling::longrope ? std::max(longest, here) : here;
}

RowFrequencies Rotary::frequencies_of(std::span<const int64_t> lengths) const {
  RowFrequencies rows;
  std::unordered_map<int64_t, int32_t> known;  // by counted_length
  for (size_t t = 0; t < lengths.size(); ++t) {
    if (t > 0 && lengths[t] == lengths[t - 1]) {  // rows of one prompt are adjacent
      rows.sets.push_back(rows.sets.back());
      continue;
    }
    const auto number = static_cast<int32_t>(known.size());
    const auto [at, is_new] = known.emplace(counted_length(lengths[t]), number);
    rows.sets.push_back(at->second);
    if (!is_new) continue;
    const std::vector<float> own = frequencies(lengths[t]);
    rows.frequencies.insert(rows.frequencies.end(), own.begin(), own.end());
    rows.factors.push_back(attention_factor_);
  }
  return rows;
}

RowFrequencies Rotary::frequencies_of_queries(std::span<const int64_t> positions) const {
  return sets_of_queries(positions, inverse_, attention_factor_);
}

RowFrequencies Rotary::growth_of_queries(std::span<const int64_t> positions) const {
  constexpr float standing = 0;
  return sets_of_queries(positions, std::span(&standing, 1), 1);
}

/// Sets with these frequencies, whose factors are `factor` times what multiplies queries.
RowFrequencies Rotary::sets_of_queries(std::span<const int64_t> positions,
                                       std::span<const float> frequencies, float factor) const {
  PECIA_CHECK(scales_queries() && config_.scaling == RopeScaling::yarn,
              "queries scaled with rope scaling {}", name_of(config_.scaling));
  RowFrequencies rows;
  std::unordered_map<int64_t, int32_t> known;  // by how often the original length has passed
  for (const int64_t position : positions) {
    const int64_t passed = position / config_.original_max_positions;
    const auto [at, is_new] = known.emplace(passed, static_cast<int32_t>(known.size()));
    rows.sets.push_back(at->second);
    if (!is_new) continue;
    const double growth = 1 + config_.temperature_beta * std::log(1 + static_cast<double>(passed));
    rows.frequencies.insert(rows.frequencies.end(), frequencies.begin(), frequencies.end());
    rows.factors.push_back(factor * static_cast<float>(growth));
  }
  return rows;
}

RowFrequencies growth_of(const QueryTemperature& temperature, std::span<const int64_t> positions) {
  RowFrequencies rows;
  std::unordered_map<int64_t, int32_t> known;  // by how often the floor has passed
  for (const int64_t position : positions) {
    const int64_t passed = (position + 1) / temperature.floor;
    const auto [at, is_new] = known.emplace(passed, static_cast<int32_t>(known.size()));
    rows.sets.push_back(at->second);
    if (!is_new) continue;
    const double growth = 1 + temperature.scale * std::log1p(static_cast<double>(passed));
    rows.frequencies.push_back(0);
    rows.factors.push_back(static_cast<float>(growth));
  }
  return rows;
}

}  // namespace pecia::model
