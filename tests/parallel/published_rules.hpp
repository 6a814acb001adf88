// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The ring rules that the program does not use, as published: what its own rule is compared with.
/// Source: Context Parallelism for Scalable Million-Token Inference, Alg. 1 and Appendix.

#include <cmath>

#include "lib/ranks/parallel/ring_rule.hpp"

namespace pecia::test {

/// Rule A counts messages round the ring alone.
inline parallel::RingDecision rule_a(const parallel::RingInputs& in) {
  const double limit = miss_rate_of_equal_messages(in);
  const bool keys_travel = kv_is_hidden(in) || in.load.miss_rate() >= limit;
  return {in,
          new_tokens_that_hide_kv(in),
          limit,
          {},
          keys_travel ? parallel::AttentionExchange::pass_kv : parallel::AttentionExchange::pass_q};
}

/// Rule C: h = alpha·ln T + beta·ln(100·T/(T+P)) + gamma, a fit to measurements; keys travel when
/// h > 0.
struct RingFit {
  double alpha, beta, gamma;
};

/// Llama-3-405B on 4 hosts of 8 H100. The paper prints alpha and gamma with the other sign, which
/// names the slower side in 10 of its own 14 measurements; these name the faster in all of them.
inline constexpr RingFit llama_405b_on_4_hosts{1.059, 1.145, -12.112};

inline parallel::AttentionExchange rule_c(const parallel::RingInputs& in, const RingFit& fit) {
  const double h = fit.alpha * std::log(in.load.new_tokens) +
                   fit.beta * std::log(100 * in.load.miss_rate()) + fit.gamma;
  return h > 0 ? parallel::AttentionExchange::pass_kv : parallel::AttentionExchange::pass_q;
}

}  // namespace pecia::test
