// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Requests that come one after another, as their shards' arrival_s say: a service's trace again.

#include <set>
#include <utility>

#include "lib/batch/source.hpp"

namespace pecia::batch {

/// A request exists once its time has come, seconds since this start of the run, whatever an
/// earlier run already did of it. Of those that exist and nobody has taken, the first in the order
/// asked goes to the first replica that has room for it: never does one wait for a replica while
/// another is without work. It is not known ahead who will take a request, so every one has a
/// counter of its own, and who adds to it first has it.
class ArrivalSource : public Source {
 public:
  /// `claims`: one for each request of the job, shared by all replicas. fcfs: by arrival, then in
  /// the job's order; longest_first: among those that have arrived. All outlive this object.
  ArrivalSource(const Inputs& inputs, const io::ResultsFile& results, job::Order order,
                comm::SharedCounters& claims);

  std::optional<schedule::Request> take(const schedule::Scheduler& scheduler, double now) override;
  std::optional<double> next_arrival() const override;
  int64_t arrived_turns() const override { return arrived_turns_; }

 private:
  double arrival(size_t index) const;
  int64_t claim(size_t index) const;

  const Inputs& inputs_;
  const io::ResultsFile& results_;
  const job::Order order_;
  comm::SharedCounters& claims_;
  std::vector<const InputRequest*> open_;  ///< by arrival
  size_t coming_ = 0;                      ///< the first of them that has not arrived
  /// Arrived and not known to be taken: (rank in the order asked, index into open_).
  std::set<std::pair<double, size_t>> waiting_;
  /// The first of them, where it is loaded.
  std::optional<std::pair<size_t, schedule::Request>> head_;
  int64_t arrived_turns_ = 0;
};

}  // namespace pecia::batch
