// SPDX-License-Identifier: Apache-2.0
/// How many KV slots a request needs on each rank.

#include <algorithm>

#include "lib/parallel/ring.hpp"
#include "lib/parallel/virtual_ranks.hpp"
#include "lib/schedule/scheduler_state.hpp"

namespace pecia::schedule {

/// The ranks that slots are shared out to: the ring's, or the virtual ranks, of which each rank of
/// the ring plays an equal number.
int Scheduler::virtual_ranks() const {
  return limits_.layout_invariant ? parallel::layout_ranks : limits_.ring_size;
}

/// Under chunked, all chunks of a prompt but the last are multiples of this many tokens, so that
/// each rank owns an equal share of them.
int64_t Scheduler::chunk_unit() const {
  return 2 * int64_t{limits_.ring_size};
}

/// Slots for tokens that are prefilled in chunks. Under prefill_first each chunk has
/// max_batch_tokens, and the last one is shorter.
///
/// Under chunked the lengths of the chunks are not known yet. Let U = 2N be their unit, tokens =
/// a·U + r with 0 ≤ r < U, and let the last chunk have b·U + r of them (b ≤ a). The chunks before
/// it are multiples of U, of which every rank owns two tokens in U: 2·(a − b). The last chunk is
/// cut into U pieces of b tokens (r = 0) or of at most b + 1. A rank owns two pieces: at most 2·b,
/// or 2·(b + 1). The sum is 2·a (r = 0) or 2·(a + 1) whatever b and the chunks are: 2·⌈tokens / U⌉.
/// It is also never more than all tokens.
int64_t Scheduler::feed_slots(int64_t tokens) const {
  if (limits_.policy == job::Policy::chunked)
    return std::min(tokens, 2 * ((tokens + chunk_unit() - 1) / chunk_unit()));
  const int64_t chunk = limits_.max_batch_tokens;
  return virtual_ranks() / limits_.ring_size *
         (tokens / chunk * parallel::max_owned_tokens(chunk, virtual_ranks()) +
          parallel::max_owned_tokens(tokens % chunk, virtual_ranks()));
}

/// Slots for the tokens that are still to be generated, if no rank gets more than its share.
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
    unfed = 1;  // the last token of an answer is cached with the next turn
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
  // The first token of the first turn's answer comes from the stem, or from an earlier run.
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
  // Every instance reserves as much as the others.
  return limits_.kv_tokens - map_.total_reserved(0) - credits_;
}

std::vector<int64_t> Scheduler::on_each_instance(int64_t slots) const {
  return std::vector<int64_t>(limits_.ring_size, slots);
}

}  // namespace pecia::schedule
