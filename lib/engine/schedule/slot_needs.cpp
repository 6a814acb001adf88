// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/slot_needs.hpp"

#include <algorithm>

#include "lib/ranks/parallel/ring.hpp"
#include "lib/ranks/parallel/virtual_ranks.hpp"
#include "lib/work/batch/request_turns.hpp"

namespace pecia::schedule {

SlotNeeds::SlotNeeds(const SchedulerLimits& limits)
    : cut_(limits.elastic           ? Cut::nowhere
           : limits.cuts_in_units() ? Cut::in_units
                                    : Cut::in_batches),
      unit_(limits.chunk_unit()),
      batch_(limits.max_batch_tokens),
      ranks_(limits.elastic ? 1 : limits.ring_size),
      virtual_ranks_(limits.layout_invariant ? parallel::layout_ranks : ranks_),
      layout_invariant_(limits.layout_invariant),
      cut_slots_(limits.has_states && !limits.elastic ? 2 * virtual_ranks_ / ranks_ : 0) {}

/// Slots for tokens that are prefilled in chunks. Under prefill_first each chunk has
/// max_batch_tokens, and the last one is shorter.
///
/// Under chunked, and in stages, the lengths of the chunks are not known yet. Let U = 2N be their
/// unit, tokens = a·U + r with 0 ≤ r < U, and let the last chunk have b·U + r of them (b ≤ a). The
/// chunks before it are multiples of U, of which every rank owns two tokens in U: 2·(a − b). The
/// last chunk is cut into U pieces of b tokens (r = 0) or of at most b + 1. A rank owns two pieces:
/// at most 2·b, or 2·(b + 1). The sum is 2·a (r = 0) or 2·(a + 1) whatever b and the chunks are:
/// 2·⌈tokens / U⌉. It is also never more than all tokens.
int64_t SlotNeeds::of_feed(int64_t tokens) const {
  switch (cut_) {
    case Cut::nowhere:
      return tokens;
    case Cut::in_units:
      return std::min(tokens, 2 * ((tokens + unit_ - 1) / unit_));
    case Cut::in_batches:
      break;
  }
  return virtual_ranks_ / ranks_ *
         (tokens / batch_ * parallel::max_owned_tokens(batch_, virtual_ranks_) +
          parallel::max_owned_tokens(tokens % batch_, virtual_ranks_));
}

/// Of `tokens` that a turn reads. Where the layout must not matter, the end of a fork's first turn
/// has chunks of its own. A cut gives each rank up to two tokens more than its share.
int64_t SlotNeeds::of_feed(int64_t stem_end, int64_t tokens) const {
  const int64_t prefix_end = layout_invariant_ ? std::min(stem_end, tokens) : 0;
  return of_feed(prefix_end) + of_feed(tokens - prefix_end) + cut_slots_;
}

int64_t SlotNeeds::of_generated(int64_t tokens) const {
  return virtual_ranks_ / ranks_ * ((tokens + virtual_ranks_ - 1) / virtual_ranks_);
}

int64_t SlotNeeds::of_run(const TokenRun& run) const {
  return run.generated ? of_generated(run.tokens) : of_feed(run.stem_end, run.tokens);
}

int64_t SlotNeeds::of_answer(const batch::Turn& turn) const {
  return of_generated(std::max<int64_t>(0, turn.max_new_tokens - std::ssize(turn.answer.tokens)));
}

/// Slots for turns that follow each other.
int64_t SlotNeeds::of_turns(std::span<const batch::Turn> turns) const {
  int64_t slots = 0, unfed = 0;
  for (const batch::Turn& turn : turns) {
    if (!turn.refused.empty()) break;
    unfed += std::ssize(turn.tokens) + std::ssize(turn.answer.tokens);
    if (turn.finished) continue;
    slots += of_feed(turn.stem_end_tokens, unfed) + of_answer(turn);
    unfed = 1;  // the last token of an answer is cached with the next turn
  }
  return slots;
}

/// Slots for the first open one of turns that follow each other, without its answer.
int64_t SlotNeeds::of_first_turn(std::span<const batch::Turn> turns) const {
  int64_t unfed = 0;
  for (const batch::Turn& turn : turns) {
    if (!turn.refused.empty()) break;
    unfed += std::ssize(turn.tokens) + std::ssize(turn.answer.tokens);
    if (!turn.finished) return of_feed(turn.stem_end_tokens, unfed);
  }
  return 0;
}

int64_t SlotNeeds::of_beginning(const batch::Request& request) const {
  return is_fork(request) ? of_prefix(request) : of_first_turn(request.turns);
}

int64_t SlotNeeds::of_branch_beginning(const batch::Request& request, size_t turn) const {
  if (turn > 0)
    return of_first_turn(
        std::span(request.turns).subspan(turn, end_of_branch(request, turn) - turn));
  const batch::Turn& branch = request.turns[turn];
  if (branch.max_new_tokens <= 1) return 0;
  return of_feed(std::max<int64_t>(1, std::ssize(branch.answer.tokens)));
}

int64_t SlotNeeds::of_later_turn(const batch::Turn& turn, int64_t unfed) const {
  return of_feed(turn.stem_end_tokens,
                 unfed + std::ssize(turn.tokens) + std::ssize(turn.answer.tokens));
}

int64_t SlotNeeds::of_prefix(const batch::Request& request) const {
  return of_feed(0, first_tokens(request));
}

int64_t SlotNeeds::of_branch(const batch::Request& request, size_t turn) const {
  if (turn > 0)
    return of_turns(std::span(request.turns).subspan(turn, end_of_branch(request, turn) - turn));
  const batch::Turn& branch = request.turns[turn];
  // The first token of the first turn's answer comes from the prefix, or from an earlier start.
  if (branch.max_new_tokens <= 1) return 0;
  return of_feed(std::max<int64_t>(1, std::ssize(branch.answer.tokens))) + of_answer(branch);
}

int64_t SlotNeeds::alone(const batch::Request& request, size_t turn) const {
  if (!is_fork(request)) return of_turns(request.turns);
  return of_prefix(request) + (branch_settled(request, turn) ? 0 : of_branch(request, turn));
}

int64_t SlotNeeds::of_request(const batch::Request& request) const {
  if (!is_fork(request)) return of_turns(request.turns);
  int64_t most = 0;
  for (size_t turn = 0; turn < request.turns.size(); turn = end_of_branch(request, turn))
    if (!branch_settled(request, turn)) most = std::max(most, of_branch(request, turn));
  return of_prefix(request) + most;
}

}  // namespace pecia::schedule
