// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What of the papers' headline figures was measured on ranks of this program, on machines with two
/// cores: other sizes than the papers', so nothing is asserted of them. The pages in apps/results have
/// the measurements.

#include <vector>

#include "lib/simulation/papers/paper.hpp"

namespace pecia::simulation::papers {

struct MeasuredFigure {
  const char* paper;  ///< its name: "CP"
  Row row;
  /// The numbers that it was computed from, as they stand on the row's page.
  std::vector<const char*> stands;
};

std::vector<MeasuredFigure> measured_figures();

/// Appends the rows of its figures to a paper.
void add_measured(Paper& paper);

}  // namespace pecia::simulation::papers
