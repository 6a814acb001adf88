// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Chooses the request that a replica takes next, and adds what an earlier run already did of it.

#include <deque>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "lib/engine/schedule/scheduler.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/work/batch/joined_request.hpp"

namespace pecia::execute {

/// The unfinished requests of the job. Every replica has the same list; each request goes to one
/// replica.
class Source {
 public:
  virtual ~Source() = default;

  /// The next request for `scheduler`; absent when it should have none now. `now`: seconds since
  /// the run began.
  virtual std::optional<batch::Request> take(const schedule::Scheduler& scheduler, double now) = 0;

  /// When to call take again after it gave nothing to a scheduler without work; absent: never.
  virtual std::optional<double> next_arrival() const = 0;

  /// Turns of requests that had arrived at the last take, including those of earlier runs.
  virtual int64_t arrived_turns() const = 0;

  /// Requests that this start does not begin, as they would not be answered in time.
  virtual int64_t passed_over() const { return 0; }
};

/// The requests that have a turn neither done nor failed, in the job's order. `results` is the file
/// as the run found it.
std::vector<const batch::InputRequest*> open_requests(const batch::Inputs& inputs,
                                                      const io::ResultsFile& results);

/// The request with what the results already have of its turns.
batch::Request load_open(const batch::Inputs& inputs, const io::ResultsFile& results,
                         const batch::InputRequest& request);

/// Tokens of the prompt and of the answer that a request begins with: the arguments of
/// Scheduler::could_finish.
std::pair<int64_t, int64_t> first_lengths(const batch::Inputs& inputs,
                                          const batch::InputRequest& request);

/// The turns of the request that a scheduler of these limits refuses at once, with the reasons.
std::vector<batch::Finished> refused_at_once(batch::Request request,
                                             const schedule::SchedulerLimits& limits);

/// Serves requests that are all there from the start. The replicas take from one list in the order
/// asked, by a shared counter, so uneven work evens out.
class ListSource : public Source {
 public:
  /// All arguments outlive this object.
  ListSource(const batch::Inputs& inputs, const io::ResultsFile& results, job::Order order,
             comm::SharedCounter& counter);

  /// Gives a request as long as the scheduler wants more; requests that an earlier start began come
  /// first. A request that would not be answered in time is passed over, and taken only where the
  /// scheduler begins it anyway. Requests that share a beginning come as one, as joined() makes
  /// them, or one by one where the scheduler has too few slots for the two parts of their prompts.
  std::optional<batch::Request> take(const schedule::Scheduler& scheduler, double now) override;
  std::optional<double> next_arrival() const override { return {}; }
  int64_t arrived_turns() const override { return inputs_.num_turns(); }
  int64_t passed_over() const override;

 private:
  batch::Request load(const batch::RequestGroup& group, const schedule::Scheduler& scheduler);
  std::optional<batch::Request> reconsider(const schedule::Scheduler& scheduler, double now);
  batch::Request take_passed_over(const schedule::Scheduler& scheduler);

  const batch::Inputs& inputs_;
  const io::ResultsFile& results_;
  comm::SharedCounter& counter_;
  std::vector<const batch::RequestGroup*> passed_over_;               ///< by this replica
  double considered_at_s_ = std::numeric_limits<double>::infinity();  ///< see reconsider
  std::vector<batch::RequestGroup> open_;
  std::deque<batch::Request> apart_;  ///< the rest of a group whose requests come one by one
  bool exhausted_ = false;
};

}  // namespace pecia::execute
