// SPDX-License-Identifier: Apache-2.0
#include "kernels/api/experts.hpp"

#include <cmath>

namespace pecia::kernels {

double touched_experts(int64_t rows, int64_t k, int64_t experts) {
  const auto all = static_cast<double>(experts);
  const double missed_by_a_row = 1 - static_cast<double>(k) / all;
  return all * (1 - std::pow(missed_by_a_row, static_cast<double>(rows)));
}

}  // namespace pecia::kernels
