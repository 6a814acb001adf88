// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What sparse attention is expected to lose: for each number of levels and deal a curve over the drop,
/// which the length of a prompt scales.

#include <cstdint>
#include <vector>

#include "lib/simulation/tune/setting.hpp"

namespace pecia::tune {

/// loss = curve(levels, deal, drop) · (tokens / middle)^−power. A curve is straight between the drops
/// that were measured and level beyond them. It never falls with drop. From three levels on it
/// jumps right after drop 0, since level 3 then leaves out half at once. Outside of the samples'
/// lengths the loss is that of the nearer end.
struct LossModel {
  /// Means over prompts, made monotone (isotonic regression). Each has the weight of its tokens.
  /// Weights by the samples' errors would favour prompts that lose little, since these err little.
  struct Knot {
    double drop = 0, loss = 0;
    double error = 0;  ///< standard error, by how prompts differ and by the samples' own errors
    bool operator==(const Knot&) const = default;
  };
  struct Curve {
    int levels = 2;
    std::vector<Knot> knots;  ///< by drop, at least one
    Deal deal = Deal::even;
    bool operator==(const Curve&) const = default;
  };

  int64_t shortest = 1, longest = 1;  ///< tokens of the samples
  double middle = 1, power = 0;
  std::vector<Curve> curves;

  /// Null where nothing was measured. Nothing dropped is the same with every deal.
  const Curve* find(int levels, Deal deal) const;
  /// Throws InvalidArgument for a number of levels and a deal without a curve.
  double loss(int64_t tokens, const Setting& setting) const;
  /// The loss and a standard error more, which never falls with drop either. A goal is held by it.
  double bound(int64_t tokens, const Setting& setting) const;
  bool operator==(const LossModel&) const = default;
};

enum class NoDrop {
  exact,    ///< nothing is lost where nothing is dropped (Geometry::disjoint)
  measured  ///< it may be
};

/// Fits the samples. The power is the one of −1, −1/2, 0, 1/2 and 1 that expects prompts best which
/// are left out of the fit; without prompts of which one is twice as long as another it is 0.
LossModel fit_loss(const std::vector<Sample>& samples, NoDrop no_drop);

/// A model of retrieval in the same form: its loss is the share of what dense attention retrieves
/// that is not retrieved. It is the same for prompts of all lengths, whose passages are equally long.
/// It is 0 where dense attention retrieves nothing.
LossModel fit_missed(const std::vector<DenseSample>& dense, const std::vector<Sample>& samples,
                     NoDrop no_drop);

/// Likelihoods of texts do not tell smaller losses from none: they count as loss 0.
inline constexpr double no_loss = 0.002;

}  // namespace pecia::tune
