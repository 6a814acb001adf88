// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/papers/goodput.hpp"

#include <algorithm>
#include <cmath>
#include <random>

namespace pecia::simulation::papers {

const std::array<Workload, 4> workloads{{{"ShareGPT", {{4, 2300}}, 10},
                                         {"L-Eval", {{2700, 210000}}},
                                         {"LV-Eval", {{15000, 497000}}},
                                         {"mixed", {{4, 2300}, {2700, 210000}, {15000, 497000}}}}};

std::vector<schedule::SimulatedRequest> requests_of(const Workload& workload, int64_t count) {
  constexpr uint64_t seed = 20261123;
  std::mt19937_64 random(seed);
  const auto uniform = [&] { return (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53; };
  std::vector<schedule::SimulatedRequest> requests(count);
  double arrival_s = 0;
  for (schedule::SimulatedRequest& request : requests) {
    const auto [least, most] = workload.kinds[random() % workload.kinds.size()];
    request.turns = {{static_cast<int64_t>(least * std::pow(most / least, uniform())),
                      static_cast<int64_t>(20 + random() % 300)}};
    request.arrival_s = arrival_s -= std::log(uniform());
  }
  return requests;
}

std::vector<double> latencies_alone(const ServiceGrid& grid,
                                    std::vector<schedule::SimulatedRequest> requests) {
  std::vector<double> latencies;
  const schedule::TeamTimes times = times_of(grid);
  for (schedule::SimulatedRequest& request : requests) {
    request.arrival_s = 0;
    latencies.push_back(simulate(limits_of(grid), times, {request}).latency_s.front());
  }
  return latencies;
}

Served serve(const ServiceGrid& grid, std::vector<schedule::SimulatedRequest> requests, double rate,
             const std::vector<double>& alone_s, double slack) {
  for (schedule::SimulatedRequest& request : requests) *request.arrival_s /= rate;
  const schedule::Simulation found =
      simulate(limits_of(grid), times_of(grid), requests, grid.replicas);
  Served served;
  double answered = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (std::isnan(found.latency_s[i])) continue;
    served.share += found.latency_s[i] <= slack * alone_s[i];
    served.mean_ttft_s += found.ttft_s[i];
    ++answered;
  }
  const auto count = static_cast<double>(requests.size());
  served.share /= count;
  served.refused = static_cast<double>(found.refused) / count;
  served.mean_ttft_s /= std::max(answered, 1.0);
  return served;
}

double makespan(const ServiceGrid& grid, std::vector<schedule::SimulatedRequest> requests) {
  for (schedule::SimulatedRequest& request : requests) request.arrival_s.reset();
  std::ranges::stable_sort(requests, std::ranges::greater(),
                           [](const auto& request) { return request.turns.front().prompt_tokens; });
  return simulate(limits_of(grid, job::Objective::throughput), times_of(grid), requests,
                  grid.replicas)
      .seconds;
}

double goodput(const std::function<Served(double rate)>& at, double share) {
  constexpr double least = 0.01, most = 1000, steps_apart = 1.02;
  if (at(least).share < share) return 0;
  double good = least, bad = 2 * least;
  while (bad < most && at(bad).share >= share) good = bad, bad *= 2;
  while (bad / good > steps_apart) {
    const double middle = std::sqrt(good * bad);
    (at(middle).share >= share ? good : bad) = middle;
  }
  return good;
}

}  // namespace pecia::simulation::papers
