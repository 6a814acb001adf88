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

#include "lib/parallel/kv_map.hpp"
#include "lib/schedule/elastic_place.hpp"
#include "lib/schedule/plan.hpp"
#include "lib/schedule/request.hpp"
#include "lib/schedule/scheduler_limits.hpp"

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
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  /// Whether the next pass could begin another request, or no request is waiting for a place. A
  /// caller that adds requests only while this is true withholds none from other replicas.
  bool wants_more() const;
  /// Whether the next pass could begin the request, or nothing else is left to run, or the request
  /// can never run and only has to be refused. A caller that adds requests only where this is true
  /// leaves the others to replicas that have room.
  bool has_room_for(const Request& request) const;

  /// Whether all its turns could run if the request had all slots to itself.
  bool fits(const Request& request) const;

  /// The fewest KV slots on each rank with which the request can run.
  int64_t tokens_needed(const Request& request) const;

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
  bool keeps_kv() const { return limits_.time && limits_.time->keeps_kv; }
  /// Whether this start has an end, stated or assumed.
  bool limited() const;
  /// Forgets an assumed end, so that all requests may begin. Call it when nothing more would be
  /// answered by then. Returns false where no end was assumed.
  bool forget_assumed_end();
  /// Call before requests are taken and a pass is planned: forgets an assumed end that is over.
  void forget_assumed_end_once_over(double now);
  /// Rates of passes, as far as they are known.
  const PassTimes& times() const { return limits_.time->times; }
  const std::optional<TeamTimes>& team_times() const { return limits_.team_times; }
  /// Whether no further pass would end in time.
  bool out_of_time() const { return out_of_time_; }
  /// Whether work was left for a later start because time ran out.
  bool left_for_later() const { return out_of_time_ || given_up_ || !late_.empty(); }

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
  int64_t num_under_way() const { return static_cast<int64_t>(under_way_.size()); }
  /// Decisions for the chunks of the last plan; empty where the ring is fixed.
  const std::vector<ChunkRing>& chunk_rings() const { return chunk_rings_; }

  /// What was decided for the last plan, where teams change.
  const std::vector<Decision>& decisions() const { return decisions_; }

  const Sharing& sharing() const { return sharing_; }

  /// How often a team that decodes has grown.
  int64_t scale_ups() const { return scale_ups_; }

  /// Takes in the `outcomes` of all ranks of the plan's teams. The pass lasted from the plan's `now`
  /// to this `now`.
  void commit(const Plan& plan, const std::vector<Outcome>& outcomes, double now);

  /// The turns that have finished or failed since the last call.
  std::vector<Finished> take_finished();

  /// Unfinished turns that have generated tokens, as partial results; called before the run drains.
  std::vector<Finished> partial() const;

  /// Running sequences of which more is cached than their requests have kept already.
  std::vector<KeepableKv> keepable() const;

 private:
  struct Running;
  struct Family;
  using Slots = std::vector<int64_t>;  ///< KV slots on each rank of an instance, by instance

  // scheduler.cpp
  void refuse(Turn& turn, const std::string& why);
  void refuse_from(Request& request, size_t first, const std::string& why);
  void refuse_too_large(Request& request);

  // scheduler_slots.cpp
  int shares() const;
  int virtual_ranks() const;
  int32_t virtual_ranks_of_rows() const;
  int64_t feed_slots(int64_t tokens) const;
  int64_t answer_slots(const Turn& turn) const;
  int64_t slots_of(std::span<const Turn> turns) const;
  int64_t slots_alone(const Request& request, size_t turn) const;
  int64_t stem_slots(const Request& request) const;
  int64_t branch_slots(const Request& request, size_t turn) const;
  Slots free_slots() const;
  using Room = std::vector<InstanceRoom>;  ///< what is left for requests that begin now
  Room room() const;
  std::optional<Slots> begin_in(Room& room, const Family& family) const;
  std::optional<Slots> begin_in(Room& room, int64_t slots, int64_t tokens, double due_s) const;
  std::optional<Slots> places_for(int64_t slots, const Slots& free) const;
  Slots first_of(int64_t slots, const Slots& from) const;
  bool has_room(int64_t slots, int64_t tokens) const;

  // scheduler_admit.cpp
  void admit(Plan& plan, double now);
  bool may_be_overtaken(const Family& family, const Room& left) const;
  void keep_back(Family& family, const Slots& slots);
  bool admit_request(Plan& plan, const std::shared_ptr<Family>& family, Room& left);
  bool admit_branch(Plan& plan, const std::shared_ptr<Family>& family);
  void add_sequence(Plan& plan, Running& running, const Slots& reserved);
  std::optional<Slots> places_beside(const Family& family, int64_t needed) const;
  void start_turn(Plan& plan, Running& running);

  // scheduler_time.cpp
  struct Ahead;
  double left_s(double now) const;
  double expected_answer(const Turn& turn, int64_t given) const;
  Ahead ahead_of_turn(const Request& request, size_t turn) const;
  Ahead ahead_of(const Request& request) const;
  Ahead ahead_of(const Running& running) const;
  Ahead ahead_of_running() const;
  double seconds_of(Ahead ahead) const;
  static double seconds_of(Ahead ahead, const PassTimes& times);
  double side_by_side() const;
  bool in_time(const Ahead& more, double now) const;
  bool turn_in_time(const Running& running, double now);
  bool branch_in_time(const Family& family, double now) const;
  bool begin_late(Plan& plan, double now);
  void give_back_late(double now);
  void reconsider_late(double now);
  int64_t rows_in_time(const Plan& plan, int64_t first, int64_t count, double now) const;
  bool decode_in_time(double now) const;
  bool answers_come_first(double now) const;

  // scheduler_plan.cpp
  using Selection = std::vector<Running*>;  ///< of running_, in an order
  void begin_turns(Plan& plan, double now);
  bool compute(Plan& plan, double now);
  void set_sharding(Plan& plan, bool prefills) const;
  int64_t batches_of(const parallel::Team& team) const;
  int64_t chunk_tokens(const Running& running, const parallel::Team& team, int64_t room,
                       bool cut) const;
  std::optional<parallel::RingDecision> ring_by_rule(const parallel::PassSequence& chunk,
                                                     parallel::RingLoad riders) const;
  static std::optional<double> asked(const Running& running);
  void feed(Plan& plan, double now, const Selection& prompts);
  void note_begin(Running& running, double now) const;
  void decode(Plan& plan, double now);
  int32_t deal(Running& running, std::vector<int64_t>& rows, int64_t step) const;
  void add_targets(Plan& plan, const Running& running, int32_t item, int64_t begin, int64_t end);
  std::vector<size_t> followers(const Running& running) const;

  // scheduler_teams.cpp
  std::optional<Plan> next_of_a_team(double now);
  std::vector<int32_t> instances_of(int64_t sequence) const;
  bool all_idle(const std::vector<int32_t>& instances) const;
  bool waits_least() const { return limits_.objective == job::Objective::ttft; }
  double due(const Family& family) const;
  struct Answers;
  std::vector<Answers> answers_by_instance() const;
  bool answers_first(const Running& prompt, const std::vector<Answers>& answers, double now);
  double others_busy_s(const parallel::Team& team, double now, double enough) const;
  int64_t short_pass(const parallel::Team& team, const Running& first) const;
  int64_t most_tokens(const parallel::Team& team, const Running& first, double now) const;
  Selection prompts_to_read(const std::vector<Answers>& answers, double now);
  bool restore_for_team(Plan& plan, double now);
  bool read_prompts(Plan& plan, const Selection& prompts, const std::vector<Answers>& answers,
                    std::set<int32_t>& called, double now);
  std::vector<int32_t> readers_of(const Running& running, const std::vector<Answers>& answers,
                                  const std::set<int32_t>& wanted);
  void note_time(const Plan& plan, double seconds);
  bool make_tokens(Plan& plan, const Selection& prompts, const std::set<int32_t>& called,
                   double now);
  size_t most_masters(const Selection& ready, size_t degree);
  int32_t master_of(const Running& running, const std::map<int32_t, int64_t>& rows,
                    size_t most) const;
  void add_token(Plan& plan, Running& running, int32_t master);
  void ride(Plan& plan, const std::vector<int32_t>& instances);
  void introduce(Plan& plan, const Running& running);
  void forget_state(int64_t sequence);
  void forget(int64_t sequence);

  // scheduler_keepers.cpp
  void grow(const Selection& ready, std::set<int32_t>& team);
  int64_t movable_slots(const Running& running) const;
  void grow_on(Running& running, int32_t instance);
  bool answers_together(const Running& running, const parallel::Team& team, int holders);
  bool spread(Running& running, const parallel::Team& team);
  void gather(const Running& running, PlanItem& item, const parallel::Team& team);
  void keep_by_room(PlanItem& item, const parallel::Team& team) const;

  // scheduler_kv.cpp
  int64_t restore_unit() const;
  bool restore(Plan& plan, double now);
  void cache(Running& running, const PlanItem& item, const parallel::Team& team);
  void end_pass(const Plan& plan);
  void note_restored(const Plan& plan, const std::vector<Outcome>& outcomes, Running& running);

  // scheduler_commit.cpp
  void take_targets(const Plan& plan, const std::vector<Outcome>& outcomes,
                    const std::vector<std::list<Running>::iterator>& of_item);
  bool stops(const Turn& turn, int32_t token) const;
  void answered(Running& running, int32_t token, double now);
  void fail_turn(Running& running, const std::string& why, double now);
  void finish_turn(Running& running, io::FinishReason reason, double now);
  void end(std::list<Running>::iterator running);

  SchedulerLimits limits_;
  parallel::KvMap map_;
  std::deque<std::shared_ptr<Family>> waiting_;
  std::list<std::shared_ptr<Family>> forks_;  ///< forks with branches still to start
  std::list<Running> running_;
  std::vector<int64_t> removed_;  ///< sequences of which all ranks still have to hear
  Plan unsent_;                   ///< sequences and turns that began for a plan without items
  std::vector<Finished> finished_;
  std::vector<ChunkRing> chunk_rings_;
  std::vector<Decision> decisions_;
  Slots credits_;  ///< slots kept back for the branches of running forks
  int64_t next_sequence_ = 0, next_plan_ = 0;
  std::deque<std::shared_ptr<Family>> late_;  ///< requests that would not be answered in time
  bool out_of_time_ = false;                  ///< no further pass would end in time
  bool given_up_ = false;                     ///< a later turn did not begin in time
  bool any_done_ = false;                     ///< this start has finished a turn
  std::map<int64_t, double> under_way_;       ///< `now` of the plans that are not committed
  // Where teams change: what instances know, and which of them are in a pass.
  struct Knowledge;
  std::map<int64_t, Knowledge> known_;         ///< by sequence
  std::vector<std::vector<int64_t>> unheard_;  ///< by instance: sequences of whose end it must hear
  enum class Doing : uint8_t { nothing, prompts, answers };
  std::vector<Doing> doing_;        ///< by instance
  std::vector<double> busy_until_;  ///< by instance: when its pass should have ended
  int64_t scale_ups_ = 0;
  Sharing sharing_;
  int64_t answered_turns_ = 0, answered_tokens_ = 0, allowed_tokens_ = 0;
};

}  // namespace pecia::schedule
