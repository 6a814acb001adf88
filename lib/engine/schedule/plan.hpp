// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One iteration of a replica as a value. Rank 0 of the replica makes and broadcasts the plan, all
/// its ranks execute it and answer with outcomes. No rank decides anything alone.

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/api/sampling.hpp"
#include "lib/base/core/archive.hpp"
#include "lib/engine/schedule/hidden_sum.hpp"
#include "lib/engine/schedule/team_times.hpp"
#include "lib/files/kv/kv_save.hpp"
#include "lib/ranks/parallel/key_copy.hpp"

namespace pecia::schedule {

/// A sequence that is new to ranks of the plan's teams. They have never had it, or they were not in
/// its last passes.
struct NewSequence {
  static constexpr int64_t no_parent = parallel::SequenceState::no_parent;

  int64_t sequence = 0;
  /// Its parent, whose tokens it begins with; slots on each rank of an instance; what it has already.
  parallel::SequenceState state = {};
  uint8_t keeps_tokens = 0;          ///< 1: its tokens are kept, as penalties will need them
  std::vector<int32_t> tokens = {};  ///< all cached ones, where kept

  template <typename A>
  void visit(A& archive) {
    archive(sequence), archive(keeps_tokens), archive(tokens);
    state.visit(archive);
  }
};

/// A sequence that has this number of slots from now on.
struct ResizedSequence {
  int64_t sequence = 0;
  std::vector<int64_t> reserved;  ///< on each rank of an instance, by instance

  template <typename A>
  void visit(A& archive) {
    archive(sequence), archive(reserved);
  }
};

/// A sequence that ends before this position from now on: the tokens after it were drafted.
struct ShortenedSequence {
  int64_t sequence = 0;
  int64_t length = 0;
};

/// Where teams change: a sequence that an instance has no more. Others may have it again by then.
struct LeftInstance {
  int64_t sequence = 0;
  int32_t instance = 0;
  int32_t parks = 0;  ///< 1: the instance parks its keys; 0: it forgets the sequence
};

/// Begins a turn: says how its tokens are sampled from now on.
struct TurnStart {
  int64_t sequence = 0;
  kernels::SamplingParams params;
  uint64_t random_key = 0;   ///< made of (seed, request, turn); counter: the token's index
  int64_t answer_begin = 0;  ///< global position of the answer's first token
  std::string shape = {};    ///< that the answer must have (grammar::Grammars); "": any
  std::vector<kernels::LogitBias> bias = {};

  template <typename A>
  void visit(A& archive) {
    archive(sequence), archive(params), archive(random_key), archive(answer_begin), archive(shape),
        archive(bias);
  }
};

/// One sequence's part of the pass.
struct PlanItem {
  parallel::PassSequence rows;
  std::vector<int32_t> tokens;  ///< token ids, [rows.count]
  int64_t prompt_end = 0;       ///< position where the turn's prompt ends
  int64_t sampled_index =
      -1;            ///< index in the answer of the first token that is sampled; −1: none is
  int32_t team = 0;  ///< of the plan's: who works on it
  /// Who keeps its keys and values, as in parallel::Placement; empty: they stay with its rows.
  std::vector<parallel::KeptShare> kept = {};
  uint8_t gathers = 0;  ///< as in parallel::Placement
  int64_t longest = 0;  ///< the most positions that the request may come to
  /// The last of its tokens, which may be the answer's next ones. A token is sampled after the row
  /// before them, and after each of theirs.
  int32_t drafted = 0;

  int64_t samples() const { return sampled_index < 0 ? 0 : drafted + 1; }
  /// Position of the first row after which a token is sampled.
  int64_t first_sampled() const { return rows.first + rows.count - 1 - drafted; }

  template <typename A>
  void visit(A& archive) {
    archive(rows), archive(tokens), archive(prompt_end), archive(longest), archive(drafted);
    archive(sampled_index), archive(team), archive(kept), archive(gathers);
  }
};

/// A token that is sampled.
struct Sample {
  int32_t item = 0;
  int32_t ahead = 0;  ///< drafted tokens of the item before it
};

/// Asks for the log-probability of `token` after the row at `position` of item `item`.
struct Target {
  static constexpr int32_t of_prompt = -1;

  int32_t item = 0;
  int32_t token = 0;
  int64_t position = 0;
  /// Which of the turn's continuations the token is of, and its place there; of_prompt: the token is of
  /// the prompt.
  int32_t continuation = of_prompt;
  int32_t index = 0;
};

/// Asks for the sum of the final normed hidden states of the rows at [begin, end) of item `item`.
struct Pool {
  int32_t item = 0;
  int32_t vector = 0;  ///< of the item's turn, to which the sum belongs
  int64_t begin = 0, end = 0;
};

/// Keys of the pass's prompts that go to instances which will answer them (parallel::KeyCopy). These
/// are in none of its teams. They take the plan in its turn, take in the keys beside what they do next,
/// and send no outcome.
struct Receiving {
  std::vector<int32_t> instances;
  std::vector<LeftInstance> left;  ///< what they park or forget first
  std::vector<NewSequence> added;  ///< then, as in the plan
  std::vector<parallel::KeyCopy> copies;

  bool has(int instance) const { return std::ranges::count(instances, instance) > 0; }
  /// What one of the instances has slots of. It hears of nothing else, nor when that ends.
  std::vector<NewSequence> added_at(int instance) const;
  std::vector<parallel::KeyCopy> copies_to(int instance) const;

  template <typename A>
  void visit(A& archive) {
    archive(instances), archive(left);
    visit_all(archive, added);
    visit_all(archive, copies);
  }
};

/// Keys and values to write while the run drains. A plan that saves does nothing else, but that
/// sequences are shortened first.
struct KvSaveOrder {
  int64_t sequence = 0;
  int64_t begin = 0, end = 0;  ///< positions
  std::string folder;          ///< "": there is nothing to save
  std::string request_id;
  int64_t stamp = 0;
  double seconds = 0;  ///< time that each rank has for writing
  /// Of keys that may be parked: the slots with which they come back, by instance. To make room ranks
  /// forget all other sequences but those that are saved `later`, which are parked. Empty: the keys
  /// are in the cache.
  std::vector<int64_t> reserved = {};
  std::vector<int64_t> later = {};

  template <typename A>
  void visit(A& archive) {
    archive(sequence), archive(begin), archive(end), archive(folder), archive(request_id),
        archive(stamp), archive(seconds), archive(reserved), archive(later);
  }
};

struct Plan {
  int64_t number = 0;
  uint8_t last = 0;   ///< 1: the replica is done, and there is nothing to execute
  double wait_s = 0;  ///< above 0: no request has arrived; wait this long and execute nothing
  /// Who works in this iteration, side by side; an instance in none of them waits for the next
  /// plan.
  std::vector<parallel::Team> teams;
  std::vector<ShortenedSequence> shortened;  ///< first of all
  std::vector<int64_t> removed;    ///< sequences whose KV is freed next, by ranks that know them
  std::vector<LeftInstance> left;  ///< then, likewise
  /// Then, in this order: sequences whose keys leave the cache, those whose keys come back to it
  /// where they are parked, and those that get more slots.
  std::vector<int64_t> parked;
  std::vector<ResizedSequence> returned, grown;
  std::vector<NewSequence> added;
  std::vector<TurnStart> turns;
  std::vector<PlanItem> items;
  std::vector<Target> targets;
  std::vector<Pool> pools;
  Receiving receiving;
  /// Folder of a save that has the keys and values of the only item, which samples nothing and has
  /// no targets. They are read, and computed only where reading fails. "": they are computed.
  std::string restore;
  KvSaveOrder save;

  template <typename A>
  void visit(A& archive) {
    archive(number), archive(last), archive(wait_s);
    visit_all(archive, teams);
    archive(shortened), archive(removed), archive(left), archive(parked);
    visit_all(archive, returned);
    visit_all(archive, grown);
    visit_all(archive, added);
    visit_all(archive, turns);
    visit_all(archive, items);
    archive(targets), archive(pools), archive(restore);
    receiving.visit(archive);
    save.visit(archive);
  }
  bool saves() const { return !save.folder.empty(); }
  /// Whether keys leave the cache or come back to it before the pass.
  bool moves_keys() const {
    return !parked.empty() || !returned.empty() ||
           std::ranges::any_of(left, [](const LeftInstance& of) { return of.parks != 0; });
  }
  /// What an instance has to shorten. Of a sequence that it forgets with this plan, it may have tokens from
  /// before that began again elsewhere.
  std::vector<ShortenedSequence> shortened_at(int instance) const;
  /// The tokens that are sampled, in the order of the items and of their answers.
  std::vector<Sample> samples() const;
  /// What each team works on, in the order of the items.
  std::vector<parallel::TeamPass> passes() const;
};

/// The rows of all its items.
int64_t count_rows(const Plan& plan);
/// The plan's work: first of its prompts, then of its output tokens.
std::pair<PassWork, PassWork> work_of(const Plan& plan);
/// The same on the busiest instance of the plan's only team, as TeamTimes wants it. Its rows are
/// those that it owns. Pairs count as shared evenly: those of prompts by the instances with rows, and
/// those of output tokens by all.
std::pair<PassWork, PassWork> busiest_work(const Plan& plan);
/// Whether keys of answers move from one instance to others with their next tokens.
bool moves_between(const Plan& plan);
/// Seconds of the pass of the plan's only team. A mixed pass takes as long as its two kinds of rows
/// together.
double expected_seconds(const Plan& plan, const TeamTimes& times);

/// Log-probabilities in the form of the results: the K most likely tokens, or the whole vocabulary.
struct LogProbs {
  std::vector<int32_t> which;       ///< indices in the plan: of samples(), or of targets
  std::vector<int32_t> tokens;      ///< [which] sampled; empty for targets
  std::vector<float> logprobs;      ///< [which]
  std::vector<int32_t> top_tokens;  ///< [which, K]
  std::vector<float> top_logprobs;  ///< [which, K or vocab]

  /// Adds the log-probabilities of further items or targets.
  void append(const LogProbs& other);

  template <typename A>
  void visit(A& archive) {
    archive(which), archive(tokens), archive(logprobs), archive(top_tokens), archive(top_logprobs);
  }
};

/// What a rank has of a pool's sum.
struct PooledSum {
  int32_t pool = 0;  ///< index in the plan
  HiddenSum sum;     ///< over this rank's rows

  template <typename A>
  void visit(A& archive) {
    archive(pool);
    sum.visit(archive);
  }
};

/// An item whose outputs are no numbers, with the part of the model that first held NaN or infinity for
/// it.
struct Broken {
  int32_t item = 0;
  int32_t order = 0;  ///< of that part among all: the first of them is to blame
  std::string where;

  template <typename A>
  void visit(A& archive) {
    archive(item), archive(order), archive(where);
  }
};

/// What became of keys and values that the plan reads or writes.
struct KvOutcome {
  uint8_t done = 0;   ///< reading: all ranks succeeded; writing: this rank did
  std::string error;  ///< this rank's error
  double seconds = 0;
  int64_t bytes = 0;
  /// Parts written: one or two, or none where other ranks hold the same.
  std::vector<io::KvPart> parts;

  template <typename A>
  void visit(A& archive) {
    archive(done), archive(error), archive(seconds), archive(bytes);
    visit_all(archive, parts);
  }
};

/// What one rank returns: results for the rows that it owns.
struct Outcome {
  LogProbs sampled, targets;
  std::vector<PooledSum> pooled;
  std::vector<Broken> broken;
  KvOutcome kv;
  /// On a GPU these count the work that has been found complete by now. A pass that samples rows
  /// counts all its work; what another pass leaves open counts with the next one.
  double compute_s = 0, comm_s = 0;
  double park_s = 0;  ///< moving keys out of the cache and back

  template <typename A>
  void visit(A& archive) {
    sampled.visit(archive), targets.visit(archive);
    visit_all(archive, pooled);
    visit_all(archive, broken);
    kv.visit(archive);
    archive(compute_s), archive(comm_s), archive(park_s);
  }
};

}  // namespace pecia::schedule
