// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What sparse attention is expected to lose: a regression over length, levels and drop.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "lib/tune/level_choice.hpp"
#include "lib/tune/setting.hpp"

namespace pecia::tune {

/// loss = Σ over terms of term · (short · (1 − t) + long · t), where t goes from 0 at the shortest
/// length of the samples to 1 at the longest with the logarithm of the length. Outside of these
/// lengths the loss is that of the nearer one. All coefficients are at least 0 and no term falls
/// with drop, so neither does the loss.
struct LossModel {
  static constexpr std::array<std::string_view, 5> terms{
      "drop",
      "1-(1-drop)^8",  ///< grows at once, and then no more
      "-log(1-drop)",  ///< grows most at the end
      "skipped",       ///< dropped pairs of query and key, as a share of dense attention's
      "repeated"       ///< pairs that several levels attend where nothing is dropped, likewise
  };
  struct Coefficients {
    double at_shortest = 0, at_longest = 0;
    bool operator==(const Coefficients&) const = default;
  };

  int64_t shortest = 0, longest = 0;  ///< tokens of the samples
  std::array<Coefficients, terms.size()> coefficients{};

  double loss(int64_t tokens, double drop, const std::vector<double>& shares) const;
  bool operator==(const LossModel&) const = default;
};

/// Fits the samples that are not held out; `choices` has their levels.
LossModel fit_loss(const std::vector<Sample>& samples, const std::vector<LevelChoice>& choices);

}  // namespace pecia::tune
