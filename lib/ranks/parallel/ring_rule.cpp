// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/ring_rule.hpp"

#include "lib/base/core/error.hpp"

namespace pecia::parallel {
namespace {

double new_tokens_per_key(const RingLoad& load) {
  return load.pairs / load.keys;
}

void check(const RingInputs& in) {
  PECIA_CHECK(in.load.new_tokens >= 1 && in.ranks >= 1, "{} new tokens on {} ranks",
              in.load.new_tokens, in.ranks);
}

void check_rates(const RingInputs& in) {
  check(in);
  PECIA_CHECK(in.rates.flops > 0 && in.rates.bandwidth > 0, "rates of {} FLOP/s and {} B/s",
              in.rates.flops, in.rates.bandwidth);
}

RingDecision decide(const RingInputs& in, double miss_rate_limit) {
  const bool keys_travel = kv_is_hidden(in) || in.load.miss_rate() >= miss_rate_limit;
  return {in,
          new_tokens_that_hide_kv(in),
          miss_rate_limit,
          {},
          keys_travel ? AttentionExchange::pass_kv : AttentionExchange::pass_q};
}

}  // namespace

void RingLoad::add(int64_t new_tokens_of_sequence, int64_t cached_tokens) {
  const auto added = static_cast<double>(new_tokens_of_sequence);
  const double seen = added + static_cast<double>(cached_tokens);
  new_tokens += added;
  keys += seen;
  pairs += added * seen;
}

double miss_rate_of_equal_messages(const RingInputs& in) {
  return 2 * in.shape.num_kv_heads * in.shape.kv_bytes / (in.shape.num_heads * in.shape.q_bytes);
}

double new_tokens_that_hide_kv(const RingInputs& in) {
  return in.ranks * in.rates.flops * in.shape.num_kv_heads * in.shape.kv_bytes /
         (2 * in.shape.num_heads * in.rates.bandwidth);
}

double tokens_that_hide_q(const RingInputs& in) {
  return in.ranks * in.rates.flops * in.shape.q_bytes / (4 * in.rates.bandwidth);
}

bool q_is_smaller(const RingInputs& in) {
  return in.load.miss_rate() <= miss_rate_of_equal_messages(in);
}

bool kv_is_hidden(const RingInputs& in) {
  return new_tokens_per_key(in.load) >= new_tokens_that_hide_kv(in);
}

bool q_is_hidden(const RingInputs& in) {
  return in.load.pairs / in.load.new_tokens >= tokens_that_hide_q(in);
}

RingDecision rule_b(const RingInputs& in) {
  check_rates(in);
  PECIA_CHECK(in.rates.all_to_all_bandwidth > 0, "an all-to-all of {} B/s",
              in.rates.all_to_all_bandwidth);
  const double kv_bytes = 2 * in.shape.num_kv_heads * in.shape.kv_bytes / in.shape.num_heads;
  const double hidden_bytes =
      4 * new_tokens_per_key(in.load) * in.rates.bandwidth / (in.ranks * in.rates.flops);
  const double slower = in.rates.all_to_all_bandwidth / in.rates.bandwidth;
  return decide(in, (kv_bytes - hidden_bytes) * slower / in.shape.out_bytes);
}

}  // namespace pecia::parallel
