// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The batch that a plan is asked about.

#include <string>
#include <vector>

#include "lib/engine/schedule/simulate.hpp"
#include "lib/simulation/request_latency.hpp"

namespace pecia::app {

/// Equal requests.
struct AskedRequests {
  std::string text;  ///< as it was typed
  simulation::RequestShape shape;
  int64_t count = 1;
};

/// PROMPT[+CACHED][:NEW][xCOUNT] each, as "128000:500x200": lengths are those of each request. Throws
/// InputError for another form, and for less than one or more than a million requests.
std::vector<AskedRequests> parse_requests(const std::vector<std::string>& texts);

/// The asked requests, longest first as the job's order says. Cached tokens are read first: they are
/// a turn without an answer.
std::vector<schedule::SimulatedRequest> simulated(const std::vector<AskedRequests>& asked);

}  // namespace pecia::app
