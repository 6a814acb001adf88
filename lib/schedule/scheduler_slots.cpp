// SPDX-License-Identifier: Apache-2.0
/// How many KV slots a request needs on each rank.

#include <algorithm>

#include "lib/parallel/ring.hpp"
#include "lib/parallel/virtual_ranks.hpp"
#include "lib/schedule/scheduler_state.hpp"

namespace pecia::schedule {

/// The ranks that slots are shared out to: those of the ring, or the virtual ones, of which each of
/// the ring plays as many.
int Scheduler::virtual_ranks() const {
  return limits_.layout_invariant ? parallel::layout_ranks : limits_.ring_size;
}

/// Under chunked, every chunk of a prompt but its last is a multiple of this many tokens: then each
/// rank owns the same number of them.
int64_t Scheduler::chunk_unit() const {
  return 2 * int64_t{limits_.ring_size};
}

/// For tokens that are prefilled in chunks. prefill_first: of max_batch_tokens each, the last one
/// shorter.
///
/// chunked: nobody knows yet how long the chunks will be. Let U = 2N be their unit, tokens = a·U +
/// r with 0 ≤ r < U, and the last chunk b·U + r of them (b ≤ a). All before it are multiples of U,
/// of which every rank owns two in U: 2·(a − b). The last is cut into U pieces of b tokens (r = 0)
/// or of at most b + 1, and a rank owns two pieces: no more than 2·b, or 2·(b + 1). Together 2·a (r
/// = 0) or 2·(a + 1), whatever b and the chunks were: 2·⌈tokens / U⌉. And never more than all.
int64_t Scheduler::feed_slots(int64_t tokens) const {
  if (limits_.policy == job::Policy::chunked)
    return std::min(tokens, 2 * ((tokens + chunk_unit() - 1) / chunk_unit()));
  const int64_t chunk = limits_.max_batch_tokens;
  return virtual_ranks() / limits_.ring_size *
         (tokens / chunk * parallel::max_owned_tokens(chunk, virtual_ranks()) +
          parallel::max_owned_tokens(tokens % chunk, virtual_ranks()));
}

/// For what is still to be generated, when no rank gets more than its share.
int64_t Scheduler::answer_slots(const Turn& turn) const {
  const int64_t tokens =
      std::max<int64_t>(0, turn.max_new_tokens - static_cast<int64_t>(turn.answer.tokens.size()));
  const int shares = virtual_ranks();
  return shares / limits_.ring_size * ((tokens + shares - 1) / shares);
}

int64_t Scheduler::chain_slots(const Request& request) const {
  int64_t slots = 0, unfed = 0;
  for (const Turn& turn : request.turns) {
    if (!turn.refused.empty()) break;
    unfed += static_cast<int64_t>(turn.tokens.size() + turn.answer.tokens.size());
    if (turn.finished) continue;
    slots += feed_slots(unfed) + answer_slots(turn);
    unfed = 1;  // the last token of an answer is cached with the turn after it
  }
  return slots;
}

int64_t Scheduler::stem_slots(const Request& request) const {
  return feed_slots(static_cast<int64_t>(request.turns.front().tokens.size()));
}

int64_t Scheduler::branch_slots(const Request& request, size_t turn) const {
  const Turn& branch = request.turns[turn];
  const auto answered = static_cast<int64_t>(branch.answer.tokens.size());
  if (turn > 0)
    return feed_slots(static_cast<int64_t>(branch.tokens.size()) + answered) + answer_slots(branch);
  // The first turn's own answer: its first token comes from the stem, if not from an earlier run.
  if (branch.max_new_tokens <= 1) return 0;
  return feed_slots(std::max<int64_t>(1, answered)) + answer_slots(branch);
}

int64_t Scheduler::tokens_needed(const Request& request) const {
  if (request.followup == io::Followup::chain) return chain_slots(request);
  int64_t most = 0;
  for (size_t turn = 0; turn < request.turns.size(); ++turn)
    if (!settled(request.turns[turn])) most = std::max(most, branch_slots(request, turn));
  return stem_slots(request) + most;
}

int64_t Scheduler::free_slots() const {
  return limits_.kv_tokens - map_.total_reserved() - credits_;
}

}  // namespace pecia::schedule
