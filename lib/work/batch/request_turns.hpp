// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What follows from the turns of a request alone. Internal to lib/engine/schedule.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

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

/// The turn whose continuation this one reads; itself where it reads none.
const Turn& owner_of(const Request& request, const Turn& turn);
Turn& owner_of(Request& request, const Turn& turn);

/// Whether the turn's score is of its own tokens.
inline bool weighs_itself(const Turn& turn) {
  return io::scores(turn.produce) && turn.continuation < 0 && turn.continuations.empty();
}

/// Adds a turn behind the only one for each continuation of several tokens, which it reads without the
/// last; the request is a fork then.
void fork_continuations(Request& request);

/// Whether the turn, or a turn of the request that is still to run, needs the outputs of its prompt's
/// tokens, and not of the last one alone.
bool needs_all_outputs(const Turn& turn);
bool needs_all_outputs(const Request& request);

/// Log-probabilities that a turn's scores weigh: of its continuations one after the other, or of its
/// own tokens.
int64_t score_tokens(const Turn& turn);
/// Index of the continuation's first token among them.
int64_t score_begin(const Turn& turn, int32_t continuation);

/// The scores from these log-probabilities, which are not NaN, but for the first token of all.
/// score: their sum in the order of tokens, for each continuation or for the prompt. rerank: the
/// probabilities of the continuations among each other.
std::vector<double> scores_of(const Turn& turn, std::span<const float> logprobs);

/// Whether nothing is wanted of the output of the last token that the request reads first: a fork's
/// first turn whose answer is under way, or that has none.
inline bool needs_no_last_output(const Request& request) {
  const Turn& first = request.turns.front();
  const bool answers = first.max_new_tokens > 0 && first.answer.tokens.empty();
  return is_fork(request) && (first.finished || (first.produce == io::Produce::text && !answers));
}

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

/// Makes room in the answers for log-probabilities of the prompts' tokens, where they are wanted, and
/// for those that scores weigh.
void make_room_for_logprobs(Request& request, int wanted, int64_t vocab);

}  // namespace pecia::batch
