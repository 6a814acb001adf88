// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a replica's passes have sent, waited and computed between two moments.

#include "apps/bench/support/replica.hpp"
#include "apps/bench/support/results.hpp"

namespace pecia::bench {

/// Seconds by kind since an earlier time, as a share of all ranks' wall time. Sums over the ranks.
/// Collective.
struct Shares {
  double exposed_comm = 0, idle = 0;
};
Shares shares_since(comm::Communicator& world, const report::Totals& before,
                    const report::Totals& now, double seconds);

/// Bytes that all ranks together have sent, and bytes that phantoms of these ranks have sent.
struct Sent {
  double total = 0, expected_in_layers = 0, expected_outside = 0;

  /// Sent bytes without those that a phantom sends for embedding and logits.
  double in_layers() const { return total - expected_outside; }
  Sent operator-(const Sent& before) const;
  /// "" when the ranks have sent as many bytes as their phantoms, and where rows travel to their
  /// experts: those of phantoms choose at random.
  std::string problem(const ReplicaSettings& settings) const;
};
/// Sums over all ranks. Collective.
Sent sent_by_all(comm::Communicator& world, Replica& replica);

/// Rank 0's seconds by span name between two states of its recorder, the most first.
std::vector<std::pair<std::string, double>> stage_seconds(const std::vector<report::Stage>& before,
                                                          const std::vector<report::Stage>& now);

/// Prints the stages under a table's row.
void print_stages(const Results& results,
                  const std::vector<std::pair<std::string, double>>& stages);

}  // namespace pecia::bench
