// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The batch that a plan is asked about.

#include <optional>
#include <string>
#include <vector>

#include "lib/batch/inputs.hpp"
#include "lib/foresight/batch_end.hpp"
#include "lib/foresight/request_time.hpp"

namespace pecia::app {

/// Equal requests.
struct AskedRequests {
  foresight::RequestShape shape;
  int64_t count = 1;
};

/// PROMPT[+CACHED][:NEW][xCOUNT], as "128000:500x200". Throws InputError for another form, and for
/// a COUNT below 1 or above a million.
AskedRequests parse_requests(const std::string& text);

/// The asked requests, longest first as the job's order says. Cached tokens are read first: they are
/// a turn without an answer.
std::vector<schedule::SimulatedRequest> simulated(const std::vector<AskedRequests>& asked);

}  // namespace pecia::app
