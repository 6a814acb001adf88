// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The highest rate of requests that a grid of LoongServe's machine serves: 90 % of them are answered
/// within 25 times their latency alone. The schedulers are the real ones; passes last as long as a
/// model says (a800_service.hpp), and nothing is computed.

#include <array>
#include <vector>

#include "lib/simulation/papers/a800_service.hpp"

namespace pecia::simulation::papers {

/// Prompts of these lengths in tokens, drawn evenly over their logarithm.
struct Lengths {
  double least, most;
};

/// Requests as LoongServe's, whose answers have 20 to 320 tokens.
struct Workload {
  const char* name;
  std::vector<Lengths> kinds;
  int times = 1;  ///< as many requests, so that a trace lasts long beside the slack of its requests
};

extern const std::array<Workload, 4> workloads;  ///< ShareGPT, L-Eval, LV-Eval, mixed

/// Requests that come independently of each other, with gaps of mean 1 between them.
std::vector<schedule::SimulatedRequest> requests_of(const Workload& workload, int64_t count);

/// Each request's latency on a grid where nothing else runs.
std::vector<double> latencies_alone(const ServiceGrid& grid,
                                    std::vector<schedule::SimulatedRequest> requests);

struct Served {
  double share = 0;    ///< of the requests, within the slack
  double refused = 0;  ///< share of the requests that the grid has no memory for
  double mean_ttft_s = 0;
};

/// At `rate` requests per second. `alone_s`: by request, its latency alone, of which it may take
/// `slack` times as long.
Served serve(const ServiceGrid& grid, std::vector<schedule::SimulatedRequest> requests, double rate,
             const std::vector<double>& alone_s, double slack);

/// Seconds until all requests are answered that are there from the start, the longest first.
double makespan(const ServiceGrid& grid, std::vector<schedule::SimulatedRequest> requests);

/// The highest rate at which this share of the requests is served, within 2 %; 0: none is high enough.
double goodput(const std::function<Served(double rate)>& at, double share);

}  // namespace pecia::simulation::papers
