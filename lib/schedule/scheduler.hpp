// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Continuous batching for one replica: which sequences run, what the next pass is, what a finished
/// pass means. No communication, no model: a state machine that is tested by itself.

#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/io/detokenizer.hpp"
#include "lib/io/prompts.hpp"
#include "lib/io/results.hpp"
#include "lib/job/job.hpp"
#include "lib/parallel/kv_map.hpp"
#include "lib/parallel/pass_modes.hpp"
#include "lib/parallel/ring_rule.hpp"
#include "lib/schedule/pass_times.hpp"
#include "lib/schedule/plan.hpp"

namespace pecia::schedule {

/// A turn to run. What an earlier run already generated is given in `answer` and not sampled again.
struct Turn {
  int64_t row = 0;  ///< in the results
  std::vector<int32_t> tokens;
  int32_t truncated_tokens = 0;  ///< of the prompt, left out of `tokens`
  int32_t max_new_tokens = 0;
  kernels::SamplingParams params;
  uint64_t random_key = 0;
  std::vector<std::string> stop;  ///< texts that end its answer
  bool finished = false;          ///< by an earlier run: only context for the turns after it
  std::string refused;            ///< why it cannot run; empty: it can
  bool recorded = false;          ///< finished or refused by an earlier run: its row is written
  io::TurnResult answer;          ///< tokens and log-probabilities so far
};

/// Keys and values of a request's first positions that an earlier start has kept.
struct SavedKv {
  std::string folder;
  int64_t tokens = 0;
};

struct Request {
  io::Followup followup = io::Followup::chain;
  std::vector<Turn> turns;
  /// Where arrivals are replayed, seconds since the run began. The ttft_s of its turns then counts
  /// from when they were asked: here, and for later turns of a chain at the end of the answer
  /// before. Absent: from the first pass.
  std::optional<double> arrival_s = {};
  SavedKv saved = {};
};

/// When a start of the run has to be over, and what is known of its speed.
struct TimeLimit {
  double end_s = 0;  ///< on the scheduler's clock: no pass begins that is expected to end later
  PassTimes times;   ///< as estimated; the scheduler fits them to its passes
  bool keeps_kv =
      false;  ///< what is read of a prompt when time is over is there for the next start
  /// Nobody has said when the start ends: `end_s` is when it would if it lasted as long as earlier
  /// ones. Nothing is left undone for that, only what can be answered by then comes first.
  bool assumed = false;
};

struct SchedulerLimits {
  int ring_size = 1;
  int64_t kv_tokens = 0;         ///< slots on each rank
  int64_t max_sequences = 1;     ///< running at a time
  int64_t max_batch_tokens = 1;  ///< new tokens of a pass that feeds prompts, all ranks together
  int64_t max_positions = 0;     ///< the model's length
  std::vector<int32_t> stop_token_ids;
  /// Must be there where a turn has stop strings.
  std::shared_ptr<const io::Detokenizer> detokenizer = {};
  int logprobs = 0, prompt_logprobs = 0;
  int64_t vocab = 0;
  parallel::PassModes modes;
  job::Policy policy = job::Policy::prefill_first;
  /// What travels when prompts are fed; absent: by rule B for each chunk, of the shape and rates.
  std::optional<parallel::Ring> ring = parallel::Ring::pass_kv;
  parallel::RingShape ring_shape;
  parallel::RingRates ring_rates;
  bool layout_invariant = false;  ///< passes are cut for parallel::layout_ranks
  std::optional<TimeLimit> time = {};
};

/// By rule: what a prompt's chunk wants to travel, and why.
struct ChunkRing {
  int64_t sequence = 0;
  parallel::RingDecision decision;
};

/// A sequence whose keys and values could be kept for a later start: a chain, or a fork's stem.
struct KeepableKv {
  int64_t row = 0;  ///< of the request's first turn
  int64_t sequence = 0;
  std::vector<int32_t> tokens;  ///< all that are cached
  int64_t begin = 0;            ///< those before are kept already
  double computed_s = 0;        ///< what the others took in this start
};

/// A turn's result as it is to be written.
struct Finished {
  int64_t row = 0;
  io::TurnState state = io::TurnState::done;
  io::TurnResult result;  ///< `mode`: the ring of its prompt's last chunk, where there was one
};

class Scheduler {
 public:
  explicit Scheduler(SchedulerLimits limits);
  ~Scheduler();

  /// `since`: from when the request waits if it has no arrival, in seconds since the run began on
  /// the caller's clock, which is that of every `now` below.
  void add(Request request, double since);
  /// Requests added whose first pass is still to come.
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  /// Whether the next pass could begin another request, or none is waiting to take a place that
  /// becomes free. Who adds requests while this is true keeps no more of them from other replicas.
  bool wants_more() const;
  /// Whether the next pass could begin the request, or nothing else is left to run, or it can never
  /// run and only has to be refused. Who adds requests only where this is true leaves those that
  /// would wait to replicas that have room.
  bool has_room_for(const Request& request) const;

  /// KV slots on each rank that the request needs at least to run at all.
  int64_t tokens_needed(const Request& request) const;

  /// Where time is limited: whether a request whose first open turn has these lengths, begun now
  /// and alone, is expected to be answered in time.
  bool could_finish(int64_t prompt_tokens, int64_t answer_tokens, double now) const;
  /// Seconds that it would take alone.
  double seconds_alone(int64_t prompt_tokens, int64_t answer_tokens) const;
  /// Whether a request is wanted although it will not be answered in time: nothing else is left
  /// that would be, and what is read of it is kept, or this start has finished nothing yet.
  bool begins_anyway(double now) const;
  /// By the rates measured so far, of passes of this kind; absent before there were any.
  std::optional<double> expected_seconds(const Plan& plan) const;
  bool keeps_kv() const { return limits_.time && limits_.time->keeps_kv; }
  /// Whether this start has an end, stated or assumed.
  bool limited() const;
  /// Where the end is only assumed and nothing more would be answered by then: forgets it, so that
  /// all may begin. False where there was no such end.
  bool forget_assumed_end();
  /// Seconds that passes take, as far as they are known.
  const PassTimes& times() const { return limits_.time->times; }
  /// Whether no further pass would end in time.
  bool out_of_time() const { return out_of_time_; }
  /// Whether time is what ended the work: something was left for a later start.
  bool left_for_later() const { return out_of_time_ || given_up_ || !late_.empty(); }

  /// The next pass; absent when nothing is left to run, or nothing that would end in time. Every
  /// plan must be executed and committed before the next.
  ///
  /// prefill_first: prompts are fed as long as there are any, then all sequences decode together.
  /// chunked (Sarathi): every sequence that decodes rides in every pass as one token, and what is
  /// left of max_batch_tokens is filled with chunks of prompts, in the order their requests began.
  /// Riders never exceed max_batch_tokens (which vLLM has to demand of its users), for each of them
  /// was in the pass before. A prompt that finds no room waits until enough answers have ended.
  ///
  /// A fork's stem keeps its keys until its last branch has ended, and in each of these passes one
  /// of its branches computes: with the stem, slots for one branch are kept back, and the place
  /// that the stem or a branch leaves is its next branch's before anyone else's.
  ///
  /// Where time is limited a turn begins only if it and all that are under way are expected to end
  /// in time; a prompt's chunk is cut to what the time left holds; a prompt that turns out too slow
  /// gives its place to others; and where time is short for all, answers come before prompts.
  /// Exceptions: begins_anyway. An assumed end is forgotten once it is over.
  std::optional<Plan> next(double now);
  /// For the chunks of the last plan; empty where the ring is fixed.
  const std::vector<ChunkRing>& chunk_rings() const { return chunk_rings_; }

  /// `outcomes` of all ranks. Seconds of the pass are the plan's wall time.
  void commit(const Plan& plan, const std::vector<Outcome>& outcomes, double now);

  /// Turns finished or failed since the last call.
  std::vector<Finished> take_finished();

  /// Unfinished turns that have generated tokens, as partial results (before the run is drained).
  std::vector<Finished> partial() const;

  /// What runs, and is more than its request has kept already.
  std::vector<KeepableKv> keepable() const;

 private:
  struct Running;
  struct Family;

  // scheduler.cpp
  void refuse(Turn& turn, const std::string& why);
  void refuse_from(Request& request, size_t first, const std::string& why);
  void refuse_too_large(Request& request);

  // scheduler_slots.cpp
  int64_t chunk_unit() const;
  int virtual_ranks() const;
  int64_t feed_slots(int64_t tokens) const;
  int64_t answer_slots(const Turn& turn) const;
  int64_t chain_slots(const Request& request) const;
  int64_t stem_slots(const Request& request) const;
  int64_t branch_slots(const Request& request, size_t turn) const;
  int64_t free_slots() const;
  bool has_room(int64_t slots) const;

  // scheduler_admit.cpp
  void admit(Plan& plan, double now);
  void keep_back(Family& family, int64_t slots);
  bool admit_request(Plan& plan, const std::shared_ptr<Family>& family);
  bool admit_branch(Plan& plan, const std::shared_ptr<Family>& family);
  void start_turn(Plan& plan, Running& running);

  // scheduler_time.cpp
  struct Ahead;
  double left_s(double now) const;
  double expected_answer(const Turn& turn, int64_t given) const;
  Ahead ahead_of_turn(const Request& request, size_t turn) const;
  Ahead ahead_of(const Request& request) const;
  Ahead ahead_of_running() const;
  double seconds_of(Ahead ahead) const;
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
  int64_t batch_tokens() const;
  int64_t chunk_tokens(const Running& running, int64_t room) const;
  std::optional<parallel::RingDecision> ring_by_rule(const parallel::PassSequence& chunk,
                                                     parallel::RingLoad riders) const;
  static std::optional<double> asked(const Running& running);
  void feed(Plan& plan, double now);
  void note_begin(Running& running, double now) const;
  void decode(Plan& plan, double now);
  int32_t deal(Running& running, std::vector<int64_t>& rows, int64_t step) const;
  void add_targets(Plan& plan, const Running& running, int32_t item, int64_t begin, int64_t end);
  std::vector<size_t> followers(const Running& running) const;

  // scheduler_kv.cpp
  int64_t restore_unit() const;
  bool restore(Plan& plan, double now);
  void cache(Running& running, const PlanItem& item);
  void note_restored(const Plan& plan, const std::vector<Outcome>& outcomes, Running& running);
  void note_computed(const Plan& plan, const PlanItem& item, double seconds, Running& running);

  // scheduler_commit.cpp
  void take_targets(const Plan& plan, const std::vector<Outcome>& outcomes,
                    const std::vector<std::list<Running>::iterator>& of_item);
  bool stops(int32_t token) const;
  void answered(Running& running, int32_t token, double now);
  void fail_turn(Running& running, const std::string& where, double now);
  void finish_turn(Running& running, io::FinishReason reason, double now);
  void end(std::list<Running>::iterator running);

  SchedulerLimits limits_;
  parallel::KvMap map_;
  std::deque<std::shared_ptr<Family>> waiting_;
  std::list<std::shared_ptr<Family>> forks_;  ///< with branches still to start
  std::list<Running> running_;
  std::vector<int64_t> removed_;
  std::vector<Finished> finished_;
  std::vector<ChunkRing> chunk_rings_;
  int64_t credits_ = 0;  ///< slots kept back for the branches of running forks
  int64_t next_sequence_ = 0, next_plan_ = 0;
  std::deque<std::shared_ptr<Family>> late_;  ///< would not be answered in time
  bool out_of_time_ = false;                  ///< no further pass
  bool given_up_ = false;                     ///< a turn of a request under way did not begin
  bool any_done_ = false;                     ///< a turn was finished
  double planned_at_ = 0;                     ///< `now` of the last plan
  int64_t answered_turns_ = 0, answered_tokens_ = 0, allowed_tokens_ = 0;
};

}  // namespace pecia::schedule
