// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {
namespace {

double softplus(double x) {
  return x > softplus_limit ? x : std::log1p(std::exp(x));
}

}  // namespace

void recurrence_gates(const RecurrenceGatesArgs& args) {
  const auto *rate = args.rate.as<float>(), *bias = args.bias.as<float>();
  for (int64_t t = 0; t < args.a.rows(); ++t)
    for (int64_t h = 0; h < args.a.size(1); ++h) {
      double step = softplus(double{row_of(args.a, t)[h]} + bias[h]);
      if (step < args.least_step) step = args.least_step;  // compared so that NaN stays
      if (step > args.most_step) step = args.most_step;
      row_of(args.decay, t)[h] = static_cast<float>(rate[h] * step);
      row_of(args.strength, t)[h] =
          static_cast<float>(args.b ? 1 / (1 + std::exp(-double{row_of(args.b, t)[h]})) : step);
    }
}

}  // namespace pecia::kernels::reference
