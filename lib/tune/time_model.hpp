// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How long a prompt is expected to take until its first token.

#include <cstdint>
#include <vector>

#include "lib/tune/level_choice.hpp"
#include "lib/tune/setting.hpp"

namespace pecia::tune {

/// TTFT = s_per_token · T + s_per_pair · T² · work + constant_s, each at least 0, where work is
/// attended(drop, levels) in the layers that drop anything, and attended(0, levels) in the others.
/// So it does not grow with drop.
struct TimeModel {
  double s_per_token = 0, s_per_pair = 0, constant_s = 0;
  double sparse_share = 1;  ///< share of the layers that drop

  double ttft_s(int64_t tokens, double drop, const std::vector<double>& shares) const;
  bool operator==(const TimeModel&) const = default;
};

/// The first and the last layer drop nothing.
double sparse_share(int64_t layers);

/// Fits the samples that are not held out, so that relative errors are small.
TimeModel fit_time(const std::vector<Sample>& samples, const std::vector<LevelChoice>& choices,
                   double sparse_share);

}  // namespace pecia::tune
