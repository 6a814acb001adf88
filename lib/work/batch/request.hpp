// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A request as a scheduler takes it, and what becomes of its turns. lib/work/batch makes requests.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/api/sampling.hpp"
#include "lib/files/kv/kv_save.hpp"
#include "lib/files/prompts/prompts.hpp"
#include "lib/files/results/results.hpp"

namespace pecia::batch {

/// A turn to run. `answer` holds the tokens that an earlier start has generated, which are not
/// sampled again.
struct Turn {
  static constexpr int64_t no_row = -1;

  int64_t row = 0;  ///< in the results; no_row: the prefix that a group of requests shares
  std::vector<int32_t> tokens;
  int32_t truncated_tokens = 0;  ///< prompt tokens cut off, not in `tokens`
  /// Of a request of a group: tokens of its first prompt that are in the shared prefix. Noted at
  /// the request's first turn, and at the first open turn of a fork.
  int32_t shared_tokens = 0;
  /// Of a fork of a group, at a later turn: the number of tokens at the front of `tokens` that are
  /// the end of the fork's own first turn. They are no part of this turn's prompt.
  int32_t stem_end_tokens = 0;
  bool goes_on = false;  ///< of a group: the next turn is of the same chain
  io::Produce produce = io::Produce::text;
  /// Tokens whose mean each of its vectors is, counted in the prompt with a shared prefix.
  std::vector<io::TokenSpan> spans;
  /// What is scored after its prompt; empty: the prompt itself.
  std::vector<std::vector<int32_t>> continuations;
  /// Of a turn that reads a continuation but for its last token, behind the turn with the same row:
  /// which continuation that is. −1: it is a turn of the job.
  int32_t continuation = -1;
  int32_t max_new_tokens = 0;
  kernels::SamplingParams params;
  std::vector<kernels::LogitBias> bias;
  bool ignore_eos = false;  ///< goes on after SchedulerLimits::eos_token_ids
  uint64_t random_key = 0;
  std::vector<std::string> stop;  ///< stop strings, which end its answer
  std::string shape;              ///< that its answer must have (grammar::Grammars); "": any
  bool finished = false;          ///< done by an earlier start; only context for later turns
  std::string refused;            ///< why it cannot run; empty: it can
  bool recorded = false;          ///< finished or refused by an earlier start: its row is written
  io::TurnResult answer;          ///< tokens and log-probabilities so far
};

/// Keys and values of a request's first positions that an earlier start of the run has kept.
struct SavedKv {
  std::string folder;
  int64_t tokens = 0;
  int64_t row = Turn::no_row;  ///< kept_row of the request when it was found
  int64_t least = 0;           ///< the fewest of these tokens that may be read (io::KvSave)
};

struct Request {
  io::Followup followup = io::Followup::chain;
  std::vector<Turn> turns;
  /// Seconds since the run began at which the request arrives, where arrivals are replayed. ttft_s
  /// of its first turn then counts from here, and ttft_s of a chain's later turn from the end of
  /// the answer before. Absent: ttft_s counts from the turn's first pass.
  std::optional<double> arrival_s = {};
  SavedKv saved = {};

  /// A group of requests that begin alike, as a fork whose first turn is their shared prefix. Each
  /// request is a branch with all of its turns; of a fork in the group each turn is a branch.
  bool is_joined() const { return turns.front().row == Turn::no_row; }
};

/// The row under which a request's keys and values are kept: of its first turn. A group has the
/// last row that is not settled, since that request is in the group for longest; no_row where all
/// are settled.
int64_t kept_row(const Request& request);

/// What groups of requests were spared.
struct Sharing {
  int64_t prefixes = 0;       ///< shared prefixes that were read
  int64_t prefix_tokens = 0;  ///< of these
  int64_t requests = 0;       ///< that began with one
  int64_t shared_tokens = 0;  ///< of these requests' prompts; without sharing, all were computed
  /// Ends of forks' first turns that later turns computed again; alone, a fork computes them once.
  int64_t repeated_tokens = 0;

  int64_t spared_tokens() const { return shared_tokens - prefix_tokens - repeated_tokens; }
  Sharing& operator+=(const Sharing& other);
  template <typename A>
  void visit(A& archive) {
    archive(prefixes), archive(prefix_tokens), archive(requests), archive(shared_tokens),
        archive(repeated_tokens);
  }
};

/// A turn's result as it is to be written.
struct Finished {
  int64_t row = 0;
  io::TurnState state = io::TurnState::done;
  io::TurnResult result;  ///< `mode` is what travelled with its prompt's last chunk, if it had one
};

}  // namespace pecia::batch
