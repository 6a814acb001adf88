// SPDX-License-Identifier: Apache-2.0
#include "lib/work/batch/request.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "lib/base/core/error.hpp"
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

Turn& owner_of(Request& request, const Turn& turn) {
  return const_cast<Turn&>(owner_of(std::as_const(request), turn));
}

const Turn& owner_of(const Request& request, const Turn& turn) {
  if (turn.continuation < 0) return turn;
  const auto is_owner = [&](const Turn& of) { return of.row == turn.row && of.continuation < 0; };
  const auto owner = std::ranges::find_if(request.turns, is_owner);
  PECIA_CHECK(owner != request.turns.end(), "no turn has the continuation of row {}", turn.row);
  return *owner;
}

bool needs_all_outputs(const Turn& turn) {
  if (weighs_itself(turn)) return true;
  if (turn.produce != io::Produce::vector) return false;
  const io::TokenSpan last{prompt_tokens(turn) - 1, prompt_tokens(turn)};
  return std::ranges::any_of(turn.spans, [&](const io::TokenSpan& of) { return of != last; });
}

bool needs_all_outputs(const Request& request) {
  return std::ranges::any_of(request.turns,
                             [](const Turn& of) { return !settled(of) && needs_all_outputs(of); });
}

void fork_continuations(Request& request) {
  const Turn& prompt = request.turns.front();
  std::vector<Turn> readers;
  for (size_t i = 0; i < prompt.continuations.size(); ++i) {
    const std::vector<int32_t>& tokens = prompt.continuations[i];
    if (tokens.size() < 2) continue;
    Turn& reader = readers.emplace_back();
    reader.row = prompt.row;
    reader.tokens.assign(tokens.begin(), tokens.end() - 1);
    reader.produce = prompt.produce;
    reader.continuation = static_cast<int32_t>(i);
    reader.finished = prompt.finished;
    reader.refused = prompt.refused;
    reader.recorded = prompt.recorded;
  }
  if (readers.empty()) return;
  request.followup = io::Followup::fork;
  std::ranges::move(readers, std::back_inserter(request.turns));
}

int64_t score_begin(const Turn& turn, int32_t continuation) {
  int64_t begin = 0;
  for (int32_t i = 0; i < continuation; ++i) begin += std::ssize(turn.continuations[i]);
  return begin;
}

int64_t score_tokens(const Turn& turn) {
  if (!io::scores(turn.produce) || turn.continuation >= 0) return 0;
  if (turn.continuations.empty()) return prompt_tokens(turn);
  return score_begin(turn, static_cast<int32_t>(turn.continuations.size()));
}

std::vector<double> scores_of(const Turn& turn, std::span<const float> logprobs) {
  const auto sum_of = [](std::span<const float> values) {
    double sum = 0;
    for (const float value : values) sum += std::isnan(value) ? 0 : value;
    return sum;
  };
  if (turn.continuations.empty()) return {sum_of(logprobs)};
  std::vector<double> scores;
  for (const auto& continuation : turn.continuations) {
    scores.push_back(sum_of(logprobs.first(continuation.size())));
    logprobs = logprobs.subspan(continuation.size());
  }
  if (turn.produce != io::Produce::rerank) return scores;
  const double most = std::ranges::max(scores);
  double total = 0;
  for (double& score : scores) total += score = std::exp(score - most);
  for (double& score : scores) score /= total;
  return scores;
}

void make_room_for_logprobs(Request& request, int wanted, int64_t vocab) {
  constexpr float no_prediction = std::numeric_limits<float>::quiet_NaN();
  for (Turn& turn : request.turns)
    if (const int64_t tokens = score_tokens(turn); tokens > 0 && !turn.finished)
      turn.answer.score_logprobs.assign(tokens, no_prediction);
  if (wanted == 0) return;
  const size_t width = top_width(wanted, vocab);
  for (Turn& turn : request.turns) {
    turn.answer.prompt_logprobs.assign(turn.tokens.size(), no_prediction);
    turn.answer.prompt_top_logprobs.assign(turn.tokens.size() * width, no_prediction);
    if (wanted > 0) turn.answer.prompt_top_tokens.assign(turn.tokens.size() * width, -1);
  }
}

}  // namespace pecia::batch
