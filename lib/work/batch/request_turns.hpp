// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What follows from the turns of a request alone. Internal to lib/engine/schedule.

#include <cstddef>
#include <cstdint>

#include "lib/work/batch/request.hpp"

namespace pecia::batch {

/// Whether the turn is finished, or refused and will never run.
inline bool settled(const Turn& turn) {
  return turn.finished || !turn.refused.empty();
}

/// Tokens of the turn's prompt, with those that are in a shared prefix.
inline int32_t prompt_tokens(const Turn& turn) {
  const auto tokens = static_cast<int32_t>(turn.tokens.size());
  return turn.stem_end_tokens > 0 ? tokens - turn.stem_end_tokens : tokens + turn.shared_tokens;
}

inline bool is_fork(const Request& request) {
  return request.followup == io::Followup::fork;
}

/// The turn after the last one of the branch, whose turns follow each other as in a chain.
inline size_t end_of_branch(const Request& request, size_t turn) {
  while (request.turns[turn].goes_on) ++turn;
  return turn + 1;
}

inline bool begins_branch(const Request& request, size_t turn) {
  return turn == 0 || !request.turns[turn - 1].goes_on;
}

/// Whether all turns of the branch that begins with this turn are settled.
bool branch_settled(const Request& request, size_t turn);

/// Prompt tokens that a request begins with.
inline int64_t first_tokens(const Request& request) {
  return static_cast<int64_t>(request.turns.front().tokens.size());
}

/// The most positions that a sequence of the request may come to: all turns of a chain with their
/// answers, or a fork's first turn and its longest branch.
int64_t longest_of(const Request& request);

/// Whether the sequences of the request need their tokens again: for penalties or shapes.
bool keeps_tokens(const Request& request);

/// Entries of top log-probabilities per token; `wanted` below 0: all.
inline int64_t top_width(int wanted, int64_t vocab) {
  return wanted < 0 ? vocab : wanted;
}

/// Makes room in the answers for log-probabilities of the prompts' tokens, where they are wanted.
void make_room_for_logprobs(Request& request, int wanted, int64_t vocab);

}  // namespace pecia::batch
