// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a Scheduler knows of each request and each sequence. Only the scheduler's own sources
/// include this header.

#include <algorithm>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "lib/schedule/request_turns.hpp"
#include "lib/schedule/scheduler.hpp"
#include "lib/schedule/stop_strings.hpp"

namespace pecia::schedule {

inline int64_t sum_of(const std::vector<int64_t>& slots) {
  return std::accumulate(slots.begin(), slots.end(), int64_t{0});
}

inline std::vector<int64_t> free_of(const std::vector<InstanceRoom>& room) {
  std::vector<int64_t> free;
  for (const InstanceRoom& instance : room) free.push_back(instance.free_slots);
  return free;
}

/// Entries of top log-probabilities per token.
inline int64_t top_width(int wanted, int64_t vocab) {
  return wanted < 0 ? vocab : wanted;
}

/// A request under way. The first turn of a fork is its stem, which is computed once. Each turn
/// that generates is a branch: a sequence of its own that begins with the stem's tokens. Turns that
/// go on (Turn::goes_on) are one branch together.
struct Scheduler::Family {
  Request request;
  double ready = 0;       ///< when its next turn could have begun
  double patience_s = 0;  ///< how long after that its first token is due, where it is by time
  std::optional<double> stem_answered;  ///< when the stem gave its first token, if it goes on
  int64_t stem = -1;                    ///< sequence of a fork's first turn
  int64_t longest = 0;                  ///< longest_of the request
  int64_t live_branches = 0;
  size_t next_branch = 0;    ///< turn of the next branch to start
  Slots credit;              ///< slots for one branch at a time, so that a stem never waits
  Slots kept;                ///< slots of `credit` that no branch uses now
  bool credit_used = false;  ///< a running branch uses the credit
  bool anyway = false;       ///< began although it will not be answered in time
  bool progressed = false;   ///< one of its turns was finished
  /// The cached tokens of its chain or stem, and the seconds that computing them took.
  std::vector<int32_t> cached;
  double computed_s = 0;

  bool is_fork() const { return schedule::is_fork(request); }
  bool branches_left() const { return next_branch < request.turns.size(); }
  /// Advances next_branch to the next branch that still has to run.
  void skip_settled() {
    while (branches_left() && branch_settled(request, next_branch))
      next_branch = end_of_branch(request, next_branch);
  }
};

/// A sequence that takes part in passes.
struct Scheduler::Running {
  std::shared_ptr<Family> family;
  int64_t sequence = 0;
  size_t turn = 0, end = 0;     ///< end: the turn after its last one
  std::optional<double> ready;  ///< when a branch's later turn could have begun
  bool is_stem = false;
  bool uses_credit = false;
  bool begun = false;          ///< the turn has begun
  int64_t in_pass = 0;         ///< its rows in a pass that is not committed
  bool timed = false;          ///< the next turn is known to end in time
  std::vector<int32_t> unfed;  ///< known tokens that are not cached, from position map.length on
  /// Tokens that the turn's prefill computes: the turn's own, or `joined` if others come with them.
  std::span<const int32_t> feed;
  std::vector<int32_t> joined;
  int64_t fed = 0;           ///< tokens of `feed` already planned
  int64_t restore_end = 0;   ///< the first tokens of `feed` are read from a save up to here
  int64_t prompt_begin = 0;  ///< position of the turn's first own token
  int64_t answer_begin = 0;
  int64_t max_new_tokens = 0;
  int64_t deal_limit = 0;          ///< most generated tokens on any one rank
  std::vector<int64_t> dealt;      ///< generated tokens by rank
  int64_t deal_shift = 0;          ///< shift in dealing generated tokens to virtual ranks
  std::vector<int32_t> own;        ///< a branch's own cached tokens, where penalties need them
  std::vector<int32_t> instances;  ///< with its slots or keys, sorted, where teams change
  bool samples = false;            ///< the end of the feed is followed by a sampled token
  double ttft_begin = 0;           ///< time from which ttft_s counts
  std::optional<double> first_token;
  double earlier_decode_s = 0;              ///< decode_s of an earlier run
  std::optional<StopStrings> stop_strings;  ///< the turn's; they have read its answer so far
  std::unique_ptr<grammar::Matcher> shape;  ///< likewise; null: the answer may have any
  io::TurnResult result;

  Turn& current() { return family->request.turns[turn]; }
  const Turn& current() const { return family->request.turns[turn]; }
  bool is_branch() const { return family->is_fork() && !is_stem; }
  bool feeding() const { return fed < static_cast<int64_t>(feed.size()); }
};

/// Answers under way on an instance, where teams change.
struct Scheduler::Answers {
  int64_t count = 0, context = 0;  ///< context: their tokens so far, together
  double tokens = 0;               ///< still expected of the longest
};

/// Which instances know a sequence, where teams change.
struct Scheduler::Knowledge {
  std::vector<bool> ever, now;  ///< by instance: it has been told of it; it has its present state
};

/// Work that is still to be done, for estimates of time.
struct Scheduler::Ahead {
  struct Answer {
    double tokens = 0;   ///< tokens still expected
    double context = 0;  ///< tokens before the answer's next one
  };
  PassWork prompts;
  std::vector<Answer> answers;

  Ahead& operator+=(const Ahead& more) {
    prompts += more.prompts;
    answers.insert(answers.end(), more.answers.begin(), more.answers.end());
    return *this;
  }
};

}  // namespace pecia::schedule
