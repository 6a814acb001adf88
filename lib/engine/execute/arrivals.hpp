// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requests that come one after another, as arrival_s in their shards says. This replays the trace
/// of a service.

#include <set>
#include <utility>

#include "lib/engine/execute/source.hpp"

namespace pecia::execute {

/// A request exists from its arrival on, in seconds since this start of the run, whatever an
/// earlier run already did of it. Among requests that exist and are not taken, the first in the
/// order asked goes to the first replica with room for it, so no request waits for one replica
/// while another has no work. Nobody knows in advance which replica will take a request. So each
/// request has a counter of its own, and the replica that adds to it first has the request.
class ArrivalSource : public Source {
 public:
  /// `claims`: one counter for each request of the job, shared by all replicas. With fcfs the order
  /// is by arrival, then as in the job; with longest_first the longest arrived request comes first.
  /// All arguments outlive this object.
  ArrivalSource(const batch::Inputs& inputs, const io::ResultsFile& results, job::Order order,
                comm::SharedCounters& claims);

  std::optional<batch::Request> take(const schedule::Scheduler& scheduler, double now) override;
  std::optional<double> next_arrival() const override;
  int64_t arrived_turns() const override { return arrived_turns_; }

 private:
  double arrival(size_t index) const;
  int64_t claim(size_t index) const;

  const batch::Inputs& inputs_;
  const io::ResultsFile& results_;
  const job::Order order_;
  comm::SharedCounters& claims_;
  std::vector<const batch::InputRequest*> open_;  ///< open requests by arrival
  size_t coming_ = 0;  ///< index in open_ of the first request that has not arrived
  /// Arrived requests not known to be taken: (rank in the order asked, index into open_).
  std::set<std::pair<double, size_t>> waiting_;
  /// The first request of waiting_, once it is loaded.
  std::optional<std::pair<size_t, batch::Request>> head_;
  int64_t arrived_turns_ = 0;
};

}  // namespace pecia::execute
