// SPDX-License-Identifier: Apache-2.0
#include "lib/work/batch/request.hpp"

#include <algorithm>
#include <limits>

#include "lib/work/batch/request_turns.hpp"

namespace pecia::batch {

int64_t kept_row(const Request& request) {
  if (!request.is_joined()) return request.turns.front().row;
  int64_t row = Turn::no_row;
  for (const Turn& turn : request.turns)
    if (!settled(turn)) row = std::max(row, turn.row);
  return row;
}

Sharing& Sharing::operator+=(const Sharing& other) {
  prefixes += other.prefixes;
  prefix_tokens += other.prefix_tokens;
  requests += other.requests;
  shared_tokens += other.shared_tokens;
  repeated_tokens += other.repeated_tokens;
  return *this;
}

bool branch_settled(const Request& request, size_t turn) {
  for (const size_t end = end_of_branch(request, turn); turn < end; ++turn)
    if (!settled(request.turns[turn])) return false;
  return true;
}

int64_t longest_of(const Request& request) {
  int64_t all = 0, branch = 0, longest = 0;
  const bool fork = is_fork(request);
  for (const Turn& turn : request.turns) {
    const bool prefix = fork && &turn == &request.turns.front();
    const int64_t tokens = (prefix ? 0 : std::ssize(turn.tokens)) + turn.max_new_tokens;
    all += tokens, branch += tokens;
    longest = std::max(longest, branch);
    if (!turn.goes_on) branch = 0;
  }
  return fork ? first_tokens(request) + longest : all;
}

bool keeps_tokens(const Request& request) {
  return std::ranges::any_of(request.turns, [](const Turn& turn) {
    return !turn.shape.empty() || turn.params.penalises();
  });
}

void make_room_for_logprobs(Request& request, int wanted, int64_t vocab) {
  if (wanted == 0) return;
  constexpr float no_prediction = std::numeric_limits<float>::quiet_NaN();
  const size_t width = top_width(wanted, vocab);
  for (Turn& turn : request.turns) {
    turn.answer.prompt_logprobs.assign(turn.tokens.size(), no_prediction);
    turn.answer.prompt_top_logprobs.assign(turn.tokens.size() * width, no_prediction);
    if (wanted > 0) turn.answer.prompt_top_tokens.assign(turn.tokens.size() * width, -1);
  }
}

}  // namespace pecia::batch
