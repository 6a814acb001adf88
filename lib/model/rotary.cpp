// SPDX-License-Identifier: Apache-2.0
#include "lib/model/rotary.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

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

double yarn_mscale(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
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

std::vector<float> Rotary::frequencies(int64_t length) const {
  const bool by_length =
      config_.scaling == RopeScaling::dynamic || config_.scaling == RopeScaling::longrope;
  if (!by_length || length <= config_.original_max_positions) return inverse_;
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

void Rotary::tables(std::span<const int64_t> positions, std::span<const int64_t> lengths,
                    TensorView cos, TensorView sin) const {
  const auto rows = static_cast<int64_t>(positions.size());
  const int64_t pairs = config_.rotary_dim / 2;
  PECIA_CHECK(lengths.size() == positions.size(), "{} lengths for {} rows", lengths.size(), rows);
  for (const TensorView& table : {cos, sin})
    PECIA_CHECK(table.dtype() == DType::fp32 && table.rank() == 2 && table.rows() == rows &&
                    table.size(1) == pairs,
                "rotary tables are fp32 [{}, {}]", rows, pairs);

  std::vector<float> inverse;
  int64_t inverse_length = -1;  // rows of one prompt are adjacent and share their length
  for (int64_t row = 0; row < rows; ++row) {
    if (lengths[row] != inverse_length) {
      inverse_length = lengths[row];
      inverse = frequencies(inverse_length);
    }
    auto* cos_row = static_cast<float*>(cos.row(row));
    auto* sin_row = static_cast<float*>(sin.row(row));
    for (int64_t i = 0; i < pairs; ++i) {
      const float angle = static_cast<float>(positions[row]) * inverse[i];
      cos_row[i] = static_cast<float>(std::cos(double{angle})) * attention_factor_;
      sin_row[i] = static_cast<float>(std::sin(double{angle})) * attention_factor_;
    }
  }
}

}  // namespace pecia::model
