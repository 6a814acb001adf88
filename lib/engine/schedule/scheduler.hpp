// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Continuous batching for one replica. The scheduler decides which sequences run and what the next
/// pass is, and takes in the outcomes of a finished pass. It knows neither communication nor model:
/// it is a state machine that is tested by itself.
///
/// It is a loop over four policies, which read one state and know nothing of each other: Admission
/// (memory; with it Demand, which also moves sequences out of memory and back), Order, TimeBudget and
/// a Former; with parallel.scheduler: loongserve a LoongDispatcher says what begins where. What it
/// holds from its limits never changes, but for the times of passes and an assumed end.

#include <memory>
#include <optional>
#include <vector>

#include "lib/engine/schedule/admission.hpp"
#include "lib/engine/schedule/former.hpp"
#include "lib/engine/schedule/keepable_kv.hpp"
#include "lib/engine/schedule/loong_dispatcher.hpp"
#include "lib/engine/schedule/order.hpp"
#include "lib/engine/schedule/time_budget.hpp"

namespace pecia::schedule {

class Scheduler {
 public:
  /// Throws InvalidArgument where the limits contradict each other.
  explicit Scheduler(SchedulerLimits limits);

  /// Adds a request. `since`: from when it waits if it has no arrival. Times here and in every
  /// `now` below are seconds since the run began, on the caller's clock.
  void add(batch::Request request, double since);
  /// Requests added whose first pass has not been planned.
  int64_t waiting() const { return std::ssize(state_.waiting); }
  /// Sequences that take part in passes.
  int64_t running() const { return std::ssize(state_.active); }
  bool on_demand() const { return state_.limits.on_demand; }
  /// What memory on demand has led to, and the lengths of answers that have ended.
  const DemandCounts& demand() const { return state_.demand; }
  const AnswerLengths& lengths() const { return state_.lengths; }
  /// Whether the next pass could begin another request, or no request is waiting for a place. A
  /// caller that adds requests only while this is true withholds none from other replicas.
  bool wants_more() const;
  /// Whether the next pass could begin the request, or nothing else is left to run, or the request
  /// can never run and only has to be refused. A caller that adds requests only where this is true
  /// leaves the others to replicas that have room.
  bool has_room_for(const batch::Request& request) const;
  /// Whether all its turns could run if the request had all slots to itself.
  bool fits(const batch::Request& request) const { return admission_.fits(state_, request); }
  /// The fewest KV slots with which the request can run: on each rank, or, where teams change, on
  /// all instances together.
  int64_t tokens_needed(const batch::Request& request) const {
    return state_.needs.of_request(request);
  }

  /// Whether a request whose first open turn has these lengths would be answered in time if it
  /// began now and ran alone. True without a time limit.
  bool could_finish(int64_t prompt_tokens, int64_t answer_tokens, double now) const;
  /// Expected seconds of such a request when it runs alone. Requires a time limit.
  double seconds_alone(int64_t prompt_tokens, int64_t answer_tokens) const;
  /// Whether to begin a request although it will not be answered in time. This is so when no other
  /// work is left, and either what is read of it is kept or this start has finished nothing yet.
  bool begins_anyway(double now) const;
  /// Expected seconds of the plan by the measured rates; absent until passes of its kind were
  /// measured.
  std::optional<double> expected_seconds(const Plan& plan) const {
    return state_.times.expected_seconds(plan);
  }
  bool keeps_kv() const { return time_.keeps_kv(); }
  /// Whether this start has an end, stated or assumed.
  bool limited() const { return time_.limited(); }
  /// Forgets an assumed end, so that all requests may begin. Call it when nothing more would be
  /// answered by then. Returns false where no end was assumed.
  bool forget_assumed_end();
  /// Call before requests are taken and a pass is planned: forgets an assumed end that is over.
  void forget_assumed_end_once_over(double now);
  /// Rates of passes, as far as they are known. Requires a time limit.
  const PassTimes& times() const { return *state_.times.passes; }
  const std::optional<TeamTimes>& team_times() const { return state_.times.teams; }
  /// Whether no further pass would end in time.
  bool out_of_time() const { return out_of_time_; }
  /// Whether work was left for a later start because time ran out.
  bool left_for_later() const { return out_of_time_ || given_up_ || !state_.late.empty(); }

  /// The next pass; absent when nothing is left to run, or nothing that would end in time. Each
  /// plan must be executed and committed before the next call.
  ///
  /// If the limits are elastic, the plan is of one team, and other passes may be under way: call
  /// this until nothing comes. Then nothing can begin before a pass under way is committed.
  /// num_under_way() tells these apart from the end.
  std::optional<Plan> next(double now);
  /// Counts the plans that were made and not committed.
  int64_t num_under_way() const { return std::ssize(state_.under_way); }
  /// Decisions for the chunks of the last plan; empty where the ring is fixed.
  const std::vector<ChunkRing>& chunk_rings() const { return former_->chunk_rings(); }
  /// What was decided for the last plan, where teams change.
  const std::vector<Decision>& decisions() const { return former_->decisions(); }
  /// What left the cache, came back or moved since the last call, in this order. Call it when a plan
  /// has come.
  const DraftCounts& draft_counts() const { return state_.draft_counts; }
  /// Sequences of which ranks may have drafted tokens that are no part of them.
  std::vector<ShortenedSequence> shortened() const { return state_.shortened(); }
  std::vector<Yield> take_yields() { return state_.yields.take(); }
  const OutOfCache& outside() const { return state_.yields.outside(); }
  /// How often a team that decodes has grown.
  int64_t scale_ups() const { return former_->scale_ups() + state_.demand.scale_ups; }
  /// Tokens whose keys leave the cache before this pass, which is under way, or come back; where
  /// teams change, on the instance that moves most.
  int64_t moved_tokens(const Plan& plan) const {
    return state_.under_way.at(plan.number).moved_tokens;
  }

  /// Takes in the `outcomes` of all ranks of the plan's teams. The pass lasted from the plan's `now`
  /// to this `now`. Builds without NDEBUG also `verify` what is known.
  std::vector<int64_t> commit(const Plan& plan, const std::vector<Outcome>& outcomes, double now);
  /// Throws InvalidArgument where what is known of sequences and slots contradicts itself.
  void verify() const { state_.verify(); }
  /// The turns that have finished or failed since the last call.
  std::vector<batch::Finished> take_finished();
  /// Unfinished turns that have generated tokens, as partial results; called before the run drains.
  std::vector<batch::Finished> partial() const { return state_.partial(); }
  /// Active sequences of which more is cached than their requests have kept already.
  std::vector<KeepableKv> keepable() const { return keepable_kv(state_); }
  const batch::Sharing& sharing() const { return state_.sharing; }

 private:
  void reconsider(double now);
  void begin_turns(double now);
  void begin_requests(double now);
  void begin_waiting(double now);
  void begin_one_by_one(double now);
  bool begin_batches(double now);
  void begin_late(double now);
  bool begin(const std::shared_ptr<RequestState>& request, Room& left);
  bool begin_branch(const std::shared_ptr<RequestState>& fork);

  SchedulerState state_;
  Admission admission_;
  Order order_;
  TimeBudget time_;
  std::optional<LoongDispatcher> loong_;
  std::unique_ptr<Former> former_;
  bool out_of_time_ = false;  ///< no further pass would end in time
  bool given_up_ = false;     ///< a turn whose request is under way did not begin in time
};

}  // namespace pecia::schedule
