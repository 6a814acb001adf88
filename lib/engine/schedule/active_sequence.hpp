// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a scheduler knows of a request under way and of each of its sequences that takes part in
/// passes. Times are seconds on the scheduler's clock. Internal to lib/engine/schedule.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lib/engine/drafts/suffix_index.hpp"
#include "lib/engine/schedule/hidden_sum.hpp"
#include "lib/engine/schedule/stop_strings.hpp"
#include "lib/engine/schedule/token_run.hpp"
#include "lib/files/grammar/grammars.hpp"
#include "lib/work/batch/request_turns.hpp"

namespace pecia::schedule {

/// KV slots on each rank of an instance, by instance.
using Slots = std::vector<int64_t>;

/// A request that waits or is under way. A chain is one sequence. Of a fork the first turn is the
/// shared prefix, a sequence that is computed once. Each turn that generates is a branch: a sequence
/// of its own that begins with the prefix. Turns that go on (Turn::goes_on) are one branch together.
struct RequestState {
  batch::Request request;
  double ready_s = 0;  ///< when its next turn could have begun
  /// How long after that its first token is due. Absent: the order is not by time.
  std::optional<double> patience_s = {};
  int64_t longest = 0;  ///< longest_of the request
  /// The cached tokens of its chain or shared prefix, and the seconds that computing them took.
  std::vector<int32_t> cached = {};
  double computed_s = 0;
  bool anyway = false;      ///< began although it will not be answered in time
  bool progressed = false;  ///< one of its turns was finished

  // Of a fork:
  int64_t prefix = -1;                           ///< sequence of its first turn
  bool prefix_again = false;                     ///< which was forgotten, and is read again now
  std::optional<double> prefix_answered_s = {};  ///< when that gave its first token, if it goes on
  int64_t active_branches = 0;
  size_t next_branch = 0;  ///< turn of the next branch to begin
  /// Of the prefix, from which its branches draft; null: not yet.
  std::unique_ptr<drafts::SuffixIndex> text = {};
  Slots credit = {};         ///< slots for one branch at a time, so that a prefix never waits
  Slots kept_back = {};      ///< slots of `credit` that no branch uses now
  bool credit_used = false;  ///< an active branch uses the credit

  bool is_fork() const { return batch::is_fork(request); }
  bool branches_left() const { return next_branch < request.turns.size(); }
  /// Advances next_branch to the next branch that still has to run.
  void skip_settled() {
    while (branches_left() && branch_settled(request, next_branch))
      next_branch = end_of_branch(request, next_branch);
  }
  /// When it should have its next first token; 0 for all where the order is not by time.
  double due_s() const { return patience_s ? ready_s + *patience_s : 0; }
};

/// The row in the results of a fork's first turn; Turn::no_row where a group of requests shares it.
inline int64_t first_row(const RequestState& of) {
  return of.request.turns.front().row;
}

/// A sequence that takes part in passes.
struct ActiveSequence {
  std::shared_ptr<RequestState> origin;  ///< the request that it is of
  int64_t id = 0;
  size_t turn = 0, end = 0;       ///< end: the turn after its last one
  std::optional<double> ready_s;  ///< when a branch's later turn could have begun
  bool is_prefix = false;         ///< of a fork
  bool uses_credit = false;
  bool begun = false;              ///< the turn has begun
  bool timed = false;              ///< the next turn is known to end in time
  bool changed = false;            ///< instances that knew of it have to hear of it again
  std::vector<int32_t> instances;  ///< with its slots or keys, sorted, where teams change
  std::vector<int32_t> readers;    ///< of its first prompt, sorted, where a batch of prompts was
                                   ///< dealt to them; else empty
  int64_t batch = -1;              ///< of its readers' prompts
  /// The sequence that gets its keys as they are computed, and goes on in its place when its prompt
  /// has been read (parallel::KeyCopy); −1: it goes on itself.
  int64_t copy = -1;
  int32_t leaves = -1;  ///< the instance from which its keys move with its next token
  std::vector<int32_t>
      own_cached;  ///< a branch's own cached tokens, where keeps_tokens, on demand or with drafts
  std::vector<TokenRun> runs;  ///< of its own cached tokens, as first computed, where on demand
  /// From which its tokens are drafted: its own text, of a branch after a prefix's last tokens; null:
  /// not yet.
  std::unique_ptr<drafts::SuffixIndex> text;
  int64_t draft_match = 0;         ///< of what is drafted in its pass (drafts::Draft)
  std::optional<Rereading> again;  ///< it was forgotten, and has this to read before it goes on

  // Tokens to compute.
  std::vector<int32_t> unfed;  ///< known tokens that are not cached, from position map.length on
  /// The first of these, which are computed again: they were in a pass with drafted tokens that were
  /// dropped, and the state of recurrent layers went back to before it.
  int64_t replays = 0;
  /// Tokens that the turn's prefill computes: the turn's own, or `joined` if others come with them.
  std::span<const int32_t> feed;
  std::vector<int32_t> joined;
  int64_t in_pass = 0;  ///< its rows in passes that are not committed
  /// Tokens of `feed` that are cached; where plans overlap, also those that are planned.
  int64_t fed = 0;
  int64_t restore_end = 0;   ///< the first tokens of `feed` are read from a save up to here
  int64_t prompt_begin = 0;  ///< position of the turn's first own token
  int64_t answer_begin = 0;  ///< position of the answer's first token

  // The answer.
  int64_t max_new_tokens = 0;
  bool samples = false;  ///< the end of the feed is followed by a sampled token
  int64_t base = 0;      ///< slots on each rank for what stands before the answer, where on demand
  int64_t most = 0;      ///< slots on each rank of all its turns with the longest answers, likewise
  int64_t reread =
      0;             ///< tokens of the answer that have slots in `base`, since they were read again
  int64_t room = 0;  ///< tokens of the answer that have slots; an earlier start's are not counted
  int64_t decoded = 0;            ///< of these that are cached
  bool came_back = false;         ///< it has yielded, and is back
  bool is_between_turns = false;  ///< its next turn has no slots yet
  int64_t deal_limit = 0;         ///< most generated tokens on any one rank
  std::vector<int64_t> dealt;     ///< generated tokens by rank
  int32_t home = -1;       ///< where it has a state, the rank that computes them now; −1: not yet
  int64_t deal_shift = 0;  ///< shift in dealing generated tokens to virtual ranks
  double ttft_begin_s = 0;                  ///< from when ttft_s counts
  std::optional<double> answer_s;           ///< when the answer's first token came
  std::optional<double> token_s;            ///< when its last token came, if this start made it
  bool has_waited = false;                  ///< for a pass with prompts since then
  double earlier_decode_s = 0;              ///< decode_s of an earlier start
  std::optional<StopStrings> stop_strings;  ///< the turn's; they have read its answer so far
  std::unique_ptr<grammar::Matcher> shape;  ///< likewise; null: the answer may have any
  std::vector<HiddenSum> pooled;            ///< by vector of the turn: of the rows computed so far
  std::string fault;                        ///< why the turn's vectors or scores are no numbers
  io::TurnResult result;

  batch::Request& request() { return origin->request; }
  const batch::Request& request() const { return origin->request; }
  batch::Turn& current() { return request().turns[turn]; }
  const batch::Turn& current() const { return request().turns[turn]; }
  bool is_branch() const { return origin->is_fork() && !is_prefix; }
  /// Whether the branch goes on with the answer whose prompt is the prefix.
  bool continues_prefix() const { return is_branch() && turn == 0; }
  /// Tokens to read before anything is sampled; of a sequence that was forgotten, what is left of
  /// the present run.
  int64_t unread() const {
    if (again) return again->present().generated ? 0 : again->left_of_run();
    return std::ssize(feed) - fed;
  }
  bool feeding() const { return unread() > 0; }
  /// The instances that read it: where its prompt was dealt to some, these, or else its own.
  const std::vector<int32_t>& needed() const { return readers.empty() ? instances : readers; }
  /// Whether the turn's prompt has been read; where plans overlap, or is in passes up to its end.
  bool has_read() const { return begun && fed == std::ssize(feed); }
  /// Whether it could have its next token in a pass now.
  bool can_decode() const { return (begun || again || replays > 0) && in_pass == 0 && !feeding(); }
  /// Whether its turn has ended, and some of its tokens are to be computed again. They have slots.
  bool ends_turn_again() const { return !begun && !again && replays > 0; }
  /// Whether there is a slot for its next token.
  bool has_room() const { return again || ends_turn_again() || decoded + replays < room; }
  /// The most tokens of the turn's answer that `room` may be for.
  int64_t longest_room() const {
    return std::max<int64_t>(
        0, current().max_new_tokens - std::ssize(current().answer.tokens) - reread);
  }
};

/// The row in the results of the turn that it is at, or of its last one.
inline int64_t row_of(const ActiveSequence& sequence) {
  const std::vector<batch::Turn>& turns = sequence.request().turns;
  return turns[std::min(sequence.turn, turns.size() - 1)].row;
}

/// Sequences in an order.
using Selection = std::vector<ActiveSequence*>;

}  // namespace pecia::schedule
