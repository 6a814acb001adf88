// SPDX-License-Identifier: Apache-2.0
#include "tests/schedule/random_workload.hpp"

#include <algorithm>

#include "tests/schedule/fake_replica.hpp"

namespace pecia::test {

using batch::Request;
using batch::Turn;
using job::Policy;
using parallel::AttentionExchange;
using schedule::SchedulerLimits;

namespace {

Turn random_turn(Draw& draw, int64_t row) {
  Turn turn;
  turn.row = row;
  turn.tokens.resize(draw.one_in(3) ? draw(1, 3) : draw(1, 60));
  for (int32_t& token : turn.tokens) token = static_cast<int32_t>(draw(5, 95));
  turn.max_new_tokens = static_cast<int32_t>(draw.one_in(3) ? draw(0, 2) : draw(0, 25));
  turn.random_key = static_cast<uint64_t>(draw(0, 1 << 30));
  if (draw.one_in(3))
    turn.stop = draw.of<std::vector<std::string>>({{"éa"}, {"aab", "bx"}, {"xxé", "é", "aé"}});
  if (draw.one_in(25)) turn.refused = "a bad turn";
  return turn;
}

}  // namespace

Request ask(int64_t row, int64_t tokens, int32_t new_tokens, int64_t saved) {
  Request request;
  request.turns.resize(1);
  request.turns[0].row = row;
  request.turns[0].max_new_tokens = new_tokens;
  for (int64_t i = 0; i < tokens; ++i)
    request.turns[0].tokens.push_back(static_cast<int32_t>(5 + (i + row) % 90));
  if (saved > 0) request.saved = {"save", saved};
  return request;
}

std::vector<Request> random_requests(Draw& draw) {
  std::vector<Request> requests(draw(1, 10));
  int64_t row = 0;
  for (Request& request : requests) {
    const bool fork = draw.one_in(2);
    request.followup = fork ? io::Followup::fork : io::Followup::chain;
    const int64_t turns = fork ? draw(1, 21) : draw(1, 4);
    for (int64_t i = 0; i < turns; ++i) request.turns.push_back(random_turn(draw, row++));
    if (fork && draw.one_in(2)) request.turns.front().max_new_tokens = 0;
  }
  return requests;
}

SchedulerLimits random_limits(Draw& draw, const std::vector<Request>& requests, int stages) {
  SchedulerLimits limits;
  limits.stages = stages;
  limits.ring_size = draw.of<int>({1, 2, 3, 8});
  limits.max_sequences = draw.of<int64_t>({1, 2, 5, 64});
  limits.max_batch_tokens = draw.of<int64_t>({1, 3, 16, 50, 1000});
  limits.max_positions = draw.of<int64_t>({40, 70, 100, 100000});
  limits.stop_token_ids = {0, stop_token};
  limits.detokenizer = fake_detokenizer();
  limits.logprobs = draw.of<int>({0, 2, -1});
  limits.prompt_logprobs = draw.of<int>({0, 1, 3, -1});
  limits.vocab = 7;
  limits.policy = draw.of<Policy>({Policy::prefill_first, Policy::chunked});
  limits.ring = draw.of<std::optional<AttentionExchange>>(
      {AttentionExchange::pass_kv, AttentionExchange::pass_q, std::nullopt});
  limits.ring_shape = {8, draw.of<double>({1, 4, 8}), 2};
  limits.ring_rates = {draw.of<double>({1e9, 1e11, 1e13}), 1e9, 1e9};
  const schedule::Scheduler counting(limits);
  for (const Request& request : requests)
    limits.kv_tokens = std::max(limits.kv_tokens, counting.tokens_needed(request));
  limits.kv_tokens = draw.of<int64_t>({1, 1, 2, 100}) * limits.kv_tokens + draw(0, 1) * draw(0, 10);
  limits.on_demand = draw.one_in(2);
  limits.block = draw.of<int64_t>({1, 2, 5, 16});
  if (limits.on_demand && draw.one_in(2)) limits.forced_yields = draw(0, 1 << 20);
  if (draw.one_in(2)) {
    const schedule::RateFit fit({draw.of<double>({1e-3, 0.5}), 1e-2, 1e-6});
    limits.team_times.emplace(schedule::PassTimes{fit, fit},
                              schedule::TeamCosts{.bytes_per_second = 1e9}, limits.ring_size);
    if (draw.one_in(2)) limits.tbt_s = draw.of<double>({1e-3, 1, 1.5, 1000});
    if (draw.one_in(2)) limits.objective = job::Objective::ttft;
  }
  limits.parking_tokens = draw.of<int64_t>({0, 40, limits.parking_tokens});
  return limits;
}

int64_t batch_tokens(const SchedulerLimits& limits) {
  return limits.policy == Policy::chunked
             ? std::max<int64_t>(limits.max_batch_tokens, 2 * limits.ring_size)
             : limits.max_batch_tokens;
}

NewTokens new_tokens(const schedule::Plan& plan) {
  NewTokens tokens;
  for (const auto& item : plan.items)
    (item.rows.owner == parallel::PassSequence::balanced ? tokens.prompt : tokens.decode) +=
        item.rows.count;
  return tokens;
}

}  // namespace pecia::test
