// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a scheduler of one replica has to keep to. The run's setup decides all of it.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "lib/engine/schedule/loong_dispatch.hpp"
#include "lib/engine/schedule/pass_times.hpp"
#include "lib/engine/schedule/team_times.hpp"
#include "lib/files/grammar/grammars.hpp"
#include "lib/files/text/detokenizer.hpp"
#include "lib/ranks/parallel/fitted_rule.hpp"
#include "lib/ranks/parallel/pass_modes.hpp"
#include "lib/work/job/job.hpp"

namespace pecia::schedule {

/// When a start of the run has to be over, and how fast its passes are expected to be.
struct TimeLimit {
  double end_s = 0;  ///< on the scheduler's clock; a pass expected to end later does not begin
  PassTimes times;   ///< an estimate, which the scheduler fits to its passes
  bool keeps_kv =
      false;  ///< the next start can use the part of a prompt that was read when time ended
  /// No limit is stated: `end_s` is when this start would end if it lasted as long as earlier ones.
  /// All work is still done, but turns that can be answered by then come first.
  bool assumed = false;
};

/// An answer of an earlier start.
struct EarlierAnswer {
  int32_t max_new_tokens = 0;
  int64_t tokens = 0;
};

/// How many instances a sequence may have.
struct InstanceCount {
  int least = 1, most = 1;
};

struct ActiveSequence;

/// Whether tokens of answers are drafted from texts (drafter.hpp), in passes of one team.
struct DraftLimits {
  /// Changes what is drafted for a sequence, `most` tokens at most.
  using Change = std::function<void(const ActiveSequence& sequence, int64_t most,
                                    std::vector<int32_t>& draft)>;

  static constexpr int64_t most_by_price = 16;

  int64_t most = 0;       ///< of an answer in a pass; 0: none are
  bool by_price = false;  ///< the number that should pay; needs the times of passes
  Change change = {};     ///< for tests, which spoil drafts

  bool on() const { return most > 0; }
};

struct SchedulerLimits {
  int ring_size = 1;  ///< instances of the replica, or of each of its stages
  /// Stages of layers (parallel.pp). Every stage runs every plan, one after the other, so several plans
  /// are under way at a time (pipeline.hpp). Not with teams that change.
  int stages = 1;
  /// Work of a row, and of a row with a key that it sees, in the same unit: of all layers.
  double row_work = 1, pair_work = 0;
  /// Work of a row in each stage's layers, and of a row whose output is asked for in the head: for
  /// simulations. Empty with one stage.
  std::vector<double> stage_work = {};
  double head_work = 0;
  /// Every sequence has instances of its own, and teams form and change from pass to pass
  /// (`parallel.cp: elastic`). Else all instances are one team.
  bool elastic = false;
  /// ttft reads prompts in the order of due_s (elastic_urgency.hpp), and takes every request that has
  /// arrived. Needs team_times.
  job::Objective objective = job::Objective::throughput;
  /// batch.objective: {tbt: …}, the longest time between two tokens of an answer, where that can be
  /// (token_pace.hpp). Needs team_times.
  std::optional<double> tbt_s = {};
  /// Where teams change: how waiting requests get instances. loongserve (loong_dispatch.hpp) needs
  /// team_times, and does not go with chunked.
  job::TeamScheduler scheduler = job::TeamScheduler::greedy;
  ElasticParts parts = {};
  int min_instances = 1;  ///< that a sequence of teams that change has
  int max_instances = 1 << 20;
  /// parallel.phases: apart. The last of the instances, this number of them, answer. The others read
  /// the prompts that begin with nothing cached, and send the keys on (parallel::KeyCopy). 0: all do
  /// both. Where teams change.
  int answering = 0;
  /// All instances that read are one team, and all that answer another. Needs `answering`.
  bool fixed_parts = false;
  int64_t kv_tokens = 0;  ///< KV slots on each rank
  /// kv.admission: demand. A sequence reserves what a likely answer needs, and grows by `block`
  /// tokens; where none are free, others are parked (demand.hpp).
  bool on_demand = false;
  int64_t block = 128;
  /// Lengths of answers that earlier starts have finished, with what they might have had.
  std::vector<EarlierAnswer> earlier_answers = {};
  /// Expected seconds until the keys that a rank has of a token are parked, or come back.
  double parking_s = 0;
  /// Tokens of each rank whose keys can be parked at a time. Beyond these, and where it is expected
  /// to take less time, a sequence that yields is forgotten, and read again later.
  int64_t parking_tokens = std::numeric_limits<int64_t>::max();
  /// How long passes are expected to take, where `time` does not say it.
  std::optional<PassTimes> pass_times = {};
  /// Parks sequences in passes that this seed chooses, wherever they could be. For tests.
  std::optional<uint64_t> forced_yields = {};
  DraftLimits drafts = {};
  int64_t max_sequences = 1;  ///< most sequences running at a time
  /// Most new tokens of a pass with prompts, all ranks together; where teams change, for each
  /// instance of the team.
  int64_t max_batch_tokens = 1;
  int64_t max_positions = 0;  ///< the model's length, in tokens
  std::vector<int32_t> stop_token_ids;
  std::vector<int32_t> eos_token_ids;  ///< the model's, which a turn with ignore_eos does not heed
  /// Required where a turn has stop strings.
  std::shared_ptr<const io::Detokenizer> detokenizer = {};
  std::shared_ptr<grammar::Grammars> grammars = {};  ///< required where a turn has a shape
  int logprobs = 0, prompt_logprobs = 0;
  int64_t vocab = 0;
  /// Of vectors: what means are multiplied by, whether they then get length 1, and their type.
  double vector_scale = 1;
  bool normalizes_vectors = true;
  io::VectorType vector_type = io::VectorType::fp32;
  parallel::PassModes modes;
  job::Policy policy = job::Policy::prefill_first;
  /// The tensor that travels when prompts are fed. Absent: rule B decides for each chunk from
  /// `ring_shape` and `ring_rates`, or `fitted_rule`.
  std::optional<parallel::AttentionExchange> ring = parallel::AttentionExchange::pass_kv;
  parallel::RingShape ring_shape;
  parallel::RingRates ring_rates = {};
  std::optional<parallel::FittedRule> fitted_rule = {};  ///< decides in place of rule B
  /// Chunks of prompts with at least this number of new tokens are attended by levels.
  std::optional<int64_t> levels_from = {};
  bool layout_invariant = false;  ///< passes are cut for parallel::layout_ranks
  /// The model has recurrent layers: one rank computes the tokens of an answer as long as it has room,
  /// so that the state stays there. With layout_invariant they are dealt nevertheless.
  bool has_states = false;
  /// What a sequence's state takes where it is parked, in tokens.
  int64_t state_tokens = 0;
  std::optional<TimeLimit> time = {};
  /// How long passes of teams take; where teams do not change, all instances are one. Absent, where
  /// they do: a prompt is read by as many instances as have nothing else to do.
  std::optional<TeamTimes> team_times = {};

  /// Whether plans are made before the plans before them have ended.
  bool overlaps() const { return stages > 1; }
  /// Plans under way at most where teams do not change: one for each stage, and one that waits for the
  /// first.
  int64_t plans_at_once() const { return overlaps() ? stages + 1 : 1; }
  /// Whether requests are to wait least for their first token.
  bool waits_least() const { return objective == job::Objective::ttft; }
  /// Whether decisions follow from team_times.
  bool decides_by_times() const { return elastic || waits_least() || tbt_s; }
  bool apart() const { return answering > 0; }
  /// Whether the instance has answers.
  bool answers(int instance) const { return !apart() || instance >= ring_size - answering; }
  /// Whether the two may work together.
  bool same_part(int a, int b) const { return answers(a) == answers(b); }
  /// Instances of an answer, and of a prompt that is read by others.
  InstanceCount answering_instances() const {
    return instances_of(apart() ? answering : ring_size);
  }
  InstanceCount reading_instances() const { return instances_of(ring_size - answering); }
  /// The most KV slots that one request can have: on each rank, or, where teams change, on all
  /// instances together.
  int64_t most_slots() const {
    return elastic ? kv_tokens * answering_instances().most : kv_tokens;
  }
  /// The KV slots of all answers: on each rank, or, where teams change, on all instances together.
  int64_t all_slots() const {
    return elastic ? kv_tokens * (apart() ? answering : ring_size) : kv_tokens;
  }
  /// Under chunked, all chunks of a prompt but the last are multiples of this many tokens, so that
  /// each rank owns an equal share of them.
  int64_t chunk_unit() const { return 2 * int64_t{ring_size}; }
  /// Whether prompts are cut after any whole unit, as the pass has room, and not at multiples of
  /// max_batch_tokens: then the cuts are not known before.
  bool cuts_in_units() const {
    const bool by_work = overlaps() && !layout_invariant && max_batch_tokens >= chunk_unit();
    return policy == job::Policy::chunked || by_work;
  }
  /// Most new tokens of a pass with prompts; of each instance where teams change. Under chunked it
  /// is at least one unit, so that every pass makes progress.
  int64_t batch_tokens() const {
    return policy == job::Policy::chunked ? std::max(max_batch_tokens, chunk_unit())
                                          : max_batch_tokens;
  }
  /// The instances that read a prompt at least.
  int least_readers() const { return elastic ? 1 : ring_size; }
  /// Most new tokens of a pass of `degree` instances.
  int64_t batch_tokens_of(int64_t degree) const {
    return elastic ? degree * batch_tokens() : batch_tokens();
  }
  /// Restored tokens end at a multiple of this. They are shared out like a chunk of whole units:
  /// every rank gets two pieces of each unit, so restoring takes the same slots as computing. Where
  /// results must be the same in any batch, a prompt is always cut at the same tokens. A state is
  /// that after all saved tokens, so these end anywhere, and take the slots of one cut more.
  int64_t restore_unit() const {
    if (has_states) return 1;
    return layout_invariant ? max_batch_tokens : chunk_unit();
  }
  /// Most tokens of a pass that restores.
  int64_t restored_tokens() const {
    if (layout_invariant) return max_batch_tokens;
    return std::max(batch_tokens() / chunk_unit(), int64_t{1}) * chunk_unit();
  }
  /// Throws InvalidArgument where the limits contradict each other.
  void verify() const;

 private:
  InstanceCount instances_of(int part) const {
    if (fixed_parts) return {part, part};
    return {std::min(min_instances, part), std::min(max_instances, part)};
  }
};

}  // namespace pecia::schedule
