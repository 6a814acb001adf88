// SPDX-License-Identifier: Apache-2.0
#include "lib/foresight/fit.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "lib/core/error.hpp"

namespace pecia::foresight {
namespace {

constexpr size_t num_factors = 4;  // gemm, attention, stream, copy
using PerFactor = std::array<double, num_factors>;

/// Σ seconds × times = taken.
struct Equation {
  PerFactor seconds;
  double taken_s;
};

std::vector<Equation> equations_of(const std::vector<Observation>& observations,
                                   const machines::Cluster& cluster) {
  std::vector<Equation> all;
  for (const Observation& each : observations) {
    const WorkSeconds work = each.foresee(cluster);
    const TakenSeconds& taken = each.taken;
    for (const Equation& equation :
         {Equation{{work.gemm_s, 0, 0, 0}, taken.gemm_s},
          Equation{{0, work.prompts_s, work.answers_s, 0}, taken.attention_s},
          Equation{{0, 0, 0, work.other_s}, taken.other_s}})
      if (equation.taken_s > 0 &&
          std::ranges::any_of(equation.seconds, [](double s) { return s > 0; }))
        all.push_back(equation);
  }
  return all;
}

/// To four digits: more would tell of nothing.
double rounded(double factor) {
  return std::stod(fmt::format("{:.4g}", factor));
}

/// How much longer than foreseen each kind of work takes: least squares of relative errors, by
/// coordinate descent. What the equations leave open stays near 1.
PerFactor times_longer(const std::vector<Equation>& equations) {
  constexpr double weight_of_one = 0.01;
  constexpr int rounds = 200;
  constexpr double least = 0.05, most = 20;
  PerFactor times;
  times.fill(1);
  for (int round = 0; round < rounds; ++round)
    for (size_t k = 0; k < num_factors; ++k) {
      double along = weight_of_one, norm = weight_of_one;
      for (const Equation& equation : equations) {
        double rest = equation.taken_s;
        for (size_t other = 0; other < num_factors; ++other)
          if (other != k) rest -= equation.seconds[other] * times[other];
        const double share = equation.seconds[k] / equation.taken_s;
        along += share * rest / equation.taken_s, norm += share * share;
      }
      times[k] = std::clamp(along / norm, least, most);
    }
  return times;
}

}  // namespace

FittedCluster fit_cluster(machines::Cluster cluster, const std::vector<Observation>& observations) {
  PECIA_CHECK(!observations.empty(), "no observations");
  FittedCluster found;
  for (const Observation& each : observations)
    found.residuals.push_back({each.name, each.foresee(cluster).all_s(), 0, each.taken.all_s});
  auto& shares = cluster.efficiency;
  if (!shares.stream) shares.stream = shares.copy;
  // Work that waits for memory where it did not before scales in another way: fit again.
  constexpr int fits = 4;
  for (int fit = 0; fit < fits; ++fit) {
    const PerFactor times = times_longer(equations_of(observations, cluster));
    const std::array factors{&shares.gemm.factor, &shares.attention.factor, &shares.stream->factor,
                             &shares.copy.factor};
    for (size_t k = 0; k < num_factors; ++k)
      *factors[k] = std::min(1.0, rounded(*factors[k] / times[k]));
  }
  for (size_t i = 0; i < observations.size(); ++i)
    found.residuals[i].after_s = observations[i].foresee(cluster).all_s();
  found.cluster = std::move(cluster);
  return found;
}

}  // namespace pecia::foresight
