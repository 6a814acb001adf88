// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/tune/paired_loss.hpp"

#include <cmath>
#include <vector>

#include "lib/base/core/error.hpp"

namespace pecia::tune {

PairedLoss paired_loss(std::span<const double> dense, std::span<const double> sparse) {
  constexpr size_t block = 64;
  PECIA_CHECK(!dense.empty() && dense.size() == sparse.size(), "{} tokens beside {}", sparse.size(),
              dense.size());
  double sum = 0;
  for (size_t i = 0; i < dense.size(); ++i) sum += sparse[i] - dense[i];
  PairedLoss loss{sum / static_cast<double>(dense.size()), 0};
  std::vector<double> means;
  for (size_t begin = 0; begin + block <= dense.size(); begin += block) {
    double& mean = means.emplace_back(0);
    for (size_t i = begin; i < begin + block; ++i) mean += (sparse[i] - dense[i]) / block;
  }
  if (means.size() < 2) return loss;
  double squares = 0;
  for (const double mean : means) squares += (mean - loss.mean) * (mean - loss.mean);
  const auto count = static_cast<double>(means.size());
  loss.error = std::sqrt(squares / (count - 1) / count);
  return loss;
}

}  // namespace pecia::tune
