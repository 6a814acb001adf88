// SPDX-License-Identifier: Apache-2.0
#include "kernels/api/experts.hpp"

#include <cmath>

namespace pecia::kernels {

double touched_experts(double rows, int64_t k, int64_t experts) {
  const auto all = static_cast<double>(experts);
  const double missed_by_a_row = 1 - static_cast<double>(k) / all;
  return all * (1 - std::pow(missed_by_a_row, rows));
}

ExpertWork work_of(const ExpertsArgs& args, int64_t here) {
  const int64_t all = args.count.value_or(here);
  const double share = static_cast<double>(here) / static_cast<double>(all);
  const int64_t k = args.chosen.size(1);
  const double pairs = args.pairs ? static_cast<double>(*args.pairs)
                                  : static_cast<double>(args.x.rows() * k) * share;
  const double rows = pairs / (static_cast<double>(k) * share);  // of all ranks, that gave them
  return {pairs, share * touched_experts(rows, k, all)};
}

}  // namespace pecia::kernels
