// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Continuous batching for one replica. The scheduler decides which sequences run and what the next
/// pass is, and takes in the outcomes of a finished pass. It knows neither communication nor model:
/// it is a state machine that is tested by itself.

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lib/schedule/admission.hpp"
#include "lib/schedule/order.hpp"
#include "lib/schedule/plan.hpp"
#include "lib/schedule/request.hpp"
#include "lib/schedule/scheduler_limits.hpp"
#include "lib/schedule/scheduler_state.hpp"
#include "lib/schedule/time_budget.hpp"

namespace pecia::schedule {

/// What rule B chose to travel for a chunk of a prompt, and why.
struct ChunkRing {
  int64_t sequence = 0;
  parallel::RingDecision decision;
};

/// A choice by expected times: the numbers that led to it, and what was chosen.
struct Decision {
  const char* name;
  std::vector<std::pair<const char*, double>> numbers;
  const char* chosen;
};

/// A sequence whose keys and values could be kept for a later start: a chain, or a fork's stem.
struct KeepableKv {
  int64_t row = 0;  ///< of the request's first turn
  int64_t sequence = 0;
  std::vector<int32_t> tokens;  ///< all cached tokens
  int64_t begin = 0;            ///< tokens before this one are kept already
  double computed_s = 0;        ///< seconds spent in this start on the other tokens
  std::vector<int> instances;   ///< that hold them
};

class Scheduler {
 public:
  explicit Scheduler(SchedulerLimits limits);
  ~Scheduler();

  /// Adds a request. `since`: from when it waits if it has no arrival. Times here and in every
  /// `now` below are seconds since the run began, on the caller's clock.
  void add(Request request, double since);
  /// Requests added whose first pass has not been planned.
  int64_t waiting() const { return std::ssize(state_.waiting); }
  int64_t running() const { return std::ssize(state_.active); }
  /// Whether the next pass could begin another request, or no request is waiting for a place. A
  /// caller that adds requests only while this is true withholds none from other replicas.
  bool wants_more() const;
  /// Whether the next pass could begin the request, or nothing else is left to run, or the request
  /// can never run and only has to be refused. A caller that adds requests only where this is true
  /// leaves the others to replicas that have room.
  bool has_room_for(const Request& request) const;

  /// Whether all its turns could run if the request had all slots to itself.
  bool fits(const Request& request) const { return admission_.fits(state_, request); }

  /// The fewest KV slots on each rank with which the request can run.
  int64_t tokens_needed(const Request& request) const { return state_.needs.of_request(request); }

  /// Whether a request whose first open turn has these lengths would be answered in time if it
  /// began now and ran alone. True without a time limit.
  bool could_finish(int64_t prompt_tokens, int64_t answer_tokens, double now) const;
  /// Expected seconds of such a request when it runs alone.
  double seconds_alone(int64_t prompt_tokens, int64_t answer_tokens) const;
  /// Whether to begin a request although it will not be answered in time. This is so when no other
  /// work is left, and either what is read of it is kept or this start has finished nothing yet.
  bool begins_anyway(double now) const;
  /// Expected seconds of the plan by the measured rates; absent until passes of its kind were
  /// measured.
  std::optional<double> expected_seconds(const Plan& plan) const;
  bool keeps_kv() const { return time_.keeps_kv(); }
  /// Whether this start has an end, stated or assumed.
  bool limited() const { return time_.limited(); }
  /// Forgets an assumed end, so that all requests may begin. Call it when nothing more would be
  /// answered by then. Returns false where no end was assumed.
  bool forget_assumed_end();
  /// Call before requests are taken and a pass is planned: forgets an assumed end that is over.
  void forget_assumed_end_once_over(double now);
  /// Rates of passes, as far as they are known.
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
  ///
  /// prefill_first: prompts are fed as long as there are any, then all sequences decode together.
  /// chunked (Sarathi): every sequence that decodes rides in every pass as one token, and chunks of
  /// prompts fill the rest of max_batch_tokens, in the order in which their requests began. Riders
  /// never exceed max_batch_tokens (vLLM leaves that to its users), since each of them was in the
  /// pass before. A prompt without room waits until enough answers have ended.
  ///
  /// A fork's stem keeps its keys until its last branch has ended, and one of its branches computes
  /// in each pass until then. Slots for one branch are kept back together with the stem's, and the
  /// place that the stem or a branch leaves goes to the stem's next branch first.
  ///
  /// With a time limit, a turn begins only if it and all turns under way are expected to end in
  /// time. A prompt's chunk is cut to what the remaining time allows, and a prompt that turns out
  /// too slow gives its place to others. Where time is short for all, answers come before prompts.
  /// There are two exceptions: begins_anyway, and an assumed end, which is forgotten once it is
  /// over.
  std::optional<Plan> next(double now);
  /// Counts the plans that were made and not committed.
  int64_t num_under_way() const { return std::ssize(state_.under_way); }
  /// Decisions for the chunks of the last plan; empty where the ring is fixed.
  const std::vector<ChunkRing>& chunk_rings() const { return chunk_rings_; }

  /// What was decided for the last plan, where teams change.
  const std::vector<Decision>& decisions() const { return decisions_; }

  const Sharing& sharing() const { return state_.sharing; }

  /// How often a team that decodes has grown.
  int64_t scale_ups() const { return scale_ups_; }

  /// Takes in the `outcomes` of all ranks of the plan's teams. The pass lasted from the plan's `now`
  /// to this `now`.
  void commit(const Plan& plan, const std::vector<Outcome>& outcomes, double now);

  /// The turns that have finished or failed since the last call.
  std::vector<Finished> take_finished();

  /// Unfinished turns that have generated tokens, as partial results; called before the run drains.
  std::vector<Finished> partial() const;

  /// ActiveSequence sequences of which more is cached than their requests have kept already.
  std::vector<KeepableKv> keepable() const;

 private:
  int32_t virtual_ranks_of_rows() const;
  void begin_requests(double now);
  bool begin_request(const std::shared_ptr<RequestState>& request, Room& left);
  bool begin_branch(const std::shared_ptr<RequestState>& fork);
  void begin_late(double now);

  // scheduler_plan.cpp
  void begin_turns(double now);
  bool compute(Plan& plan, double now);
  void set_sharding(Plan& plan, bool prefills) const;
  int64_t batches_of(const parallel::Team& team) const;
  int64_t chunk_tokens(const ActiveSequence& running, const parallel::Team& team, int64_t room,
                       bool cut) const;
  std::optional<parallel::RingDecision> ring_by_rule(const parallel::PassSequence& chunk,
                                                     parallel::RingLoad riders) const;
  static std::optional<double> asked(const ActiveSequence& running);
  void feed(Plan& plan, double now, const Selection& prompts);
  void note_begin(ActiveSequence& running, double now) const;
  void decode(Plan& plan);
  int32_t deal(ActiveSequence& running, std::vector<int64_t>& rows, int64_t step) const;
  void add_targets(Plan& plan, const ActiveSequence& running, int32_t item, int64_t begin,
                   int64_t end);

  // scheduler_teams.cpp
  std::optional<Plan> next_of_a_team(double now);
  bool all_idle(const std::vector<int32_t>& instances) const;
  bool waits_least() const { return state_.limits.objective == job::Objective::ttft; }
  struct Answers;
  std::vector<Answers> answers_by_instance() const;
  bool answers_first(const ActiveSequence& prompt, const std::vector<Answers>& answers, double now);
  double others_busy_s(const parallel::Team& team, double now, double enough) const;
  int64_t short_pass(const parallel::Team& team, const ActiveSequence& first) const;
  int64_t most_tokens(const parallel::Team& team, const ActiveSequence& first, double now) const;
  Selection prompts_to_read(const std::vector<Answers>& answers, double now);
  bool restore_for_team(Plan& plan, double now);
  bool read_prompts(Plan& plan, const Selection& prompts, const std::vector<Answers>& answers,
                    std::set<int32_t>& called, double now);
  std::vector<int32_t> readers_of(const ActiveSequence& running,
                                  const std::vector<Answers>& answers,
                                  const std::set<int32_t>& wanted);
  bool make_tokens(Plan& plan, const Selection& prompts, const std::set<int32_t>& called);
  size_t most_masters(const Selection& ready, size_t degree);
  int32_t master_of(const ActiveSequence& running, const std::map<int32_t, int64_t>& rows,
                    size_t most) const;
  void add_token(Plan& plan, ActiveSequence& running, int32_t master);
  void ride(Plan& plan, const std::vector<int32_t>& instances);
  void introduce(Plan& plan, ActiveSequence& running);
  void forget(int64_t sequence);

  // scheduler_keepers.cpp
  void grow(const Selection& ready, std::set<int32_t>& team);
  int64_t movable_slots(const ActiveSequence& running) const;
  void grow_on(ActiveSequence& running, int32_t instance);
  bool answers_together(const ActiveSequence& running, const parallel::Team& team, int holders);
  bool spread(ActiveSequence& running, const parallel::Team& team);
  void gather(ActiveSequence& running, PlanItem& item, const parallel::Team& team);
  void keep_by_room(PlanItem& item, const parallel::Team& team) const;

  // scheduler_kv.cpp
  bool restore(Plan& plan, double now);

  SchedulerState state_;
  Admission admission_;
  Order order_;
  TimeBudget time_;
  PassBudget budget_;  ///< of the pass that is being planned
  std::vector<ChunkRing> chunk_rings_;
  std::vector<Decision> decisions_;
  bool out_of_time_ = false;  ///< no further pass would end in time
  bool given_up_ = false;     ///< a later turn did not begin in time
  // Where teams change: what instances know.
  struct Knowledge;
  std::map<int64_t, Knowledge> known_;         ///< by sequence
  std::vector<std::vector<int64_t>> unheard_;  ///< by instance: sequences of whose end it must hear
  std::vector<double> busy_until_;             ///< by instance: when its pass should have ended
  int64_t scale_ups_ = 0;
};

}  // namespace pecia::schedule
