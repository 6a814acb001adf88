// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Measured rates of ops by their sizes, and the shares of a peak that follow.

#include <vector>

#include "lib/work/cluster_files/efficiency.hpp"

namespace pecia::measure {

/// Rates along one axis (the `share` of a point is a rate here), and the size on this axis at which
/// the rates along the other axes were measured.
struct RatesBySize {
  cluster_files::Curve curve;
  double reference = 0;

  double at_reference() const { return curve.at(reference); }
  double most() const;
};

/// Three digits: no more are known, and files stay readable.
double rounded(double value);
/// A share that a cluster file takes: from 0.001 to 1, rounded.
double share_of(double rate, double peak);

/// The shares of `peak` of all sizes, times `factor`. They give the measured rates again where only
/// one of the sizes differs from its reference. The first curve has the level, and those after it
/// are relative to their largest rate, so no share is above 1 where no rate is above the peak.
cluster_files::Efficiency shares_of(std::vector<RatesBySize> rates, double peak, double factor);

}  // namespace pecia::measure
