// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requests in the order of their length, joined to units that batches() does not divide.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lib/schedule/elastic_request.hpp"
#include "lib/schedule/pass_times.hpp"

namespace pecia::schedule {

/// What units are to have equal amounts of.
///
/// The least Σ count·time of groups with n_g requests of w_g seconds on I instances gives each about
/// √(n_g·w_g) of them. For equal requests this is the sum of the roots of their lengths. The least
/// makespan gives each about w_g of them.
enum class UnitWeight { length, root_of_length };

struct LengthOrder {
  std::vector<int32_t> requests;  ///< places in the input
  std::vector<size_t> cuts;       ///< unit u has requests [cuts[u], cuts[u + 1]) of the order
  /// Sums over all requests before each cut.
  std::vector<int64_t> tokens, slots;
  std::vector<double> pairs;

  size_t units() const { return cuts.size() - 1; }
};

/// Orders requests by the time of their rows and pairs on one instance, of equal ones the earlier
/// first. Up to `most_units` requests are a unit each. More are joined: a unit takes requests until
/// the sum of their weights would exceed a limit, and the limit is the smallest that gives so few
/// units.
LengthOrder length_order(const PassRates& alone, const std::vector<ElasticRequest>& requests,
                         size_t most_units, UnitWeight weight);

}  // namespace pecia::schedule
