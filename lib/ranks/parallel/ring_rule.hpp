// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Decides which tensor should travel round the ring: keys and values, or queries. The functions
/// are pure. They depend on what a pass computes, the model's shape and three rates.
///
/// A pass has T new and P cached tokens on N ranks. e_kv, e_q and e_out are the bytes of an element
/// that travels. C is the FLOP/s of one rank. BW and BW_a are the B/s that it sends round the ring
/// and to all others at once. A ring step of one layer then takes
///
///     attention    4·T·(T+P)·Hq·D / (N²·C)
///     pass-KV      2·(T+P)·Hkv·D·e_kv / (N·BW)
///     pass-Q       T·Hq·D·e_q / (N·BW), and afterwards, N−1 times and exposed, the all-to-all's
///                  T·Hq·D·e_out / (N·BW_a)
///
/// Over links that a server or a rack shares, BW_a is below BW. A ring sends one message across
/// each way. An all-to-all sends one for each pair of ranks on the two sides. The head's width D
/// cancels out of every condition. The log-sum-exp that returns with each D elements of output is
/// left out, as it is 1/D of them. With one e for all three, the conditions are the ones of the
/// paper.
/// Source: Context Parallelism for Scalable Million-Token Inference.

#include <cstdint>
#include <optional>

#include "lib/ranks/parallel/pass.hpp"

namespace pecia::parallel {

/// What a pass attends. For one sequence T = new_tokens, T+P = keys and T·(T+P) = pairs. Sequences
/// that share a pass also share its messages. Their numbers add up, and the products above become
/// sums of products.
struct RingLoad {
  double new_tokens = 0;
  double keys = 0;
  double pairs = 0;

  void add(int64_t new_tokens_of_sequence, int64_t cached_tokens);
  double cached_tokens() const { return keys - new_tokens; }
  double miss_rate() const { return new_tokens / keys; }
};

struct RingShape {
  double num_heads = 1, num_kv_heads = 1;
  double kv_bytes = 4;   ///< bytes of a K or V element in the cache, with its share of a scale
  double q_bytes = 4;    ///< bytes of an element of Q
  double out_bytes = 4;  ///< bytes of an element of a partial output on its way home
};

struct RingRates {
  double flops = 0;      ///< FLOP/s of attention on one rank
  double bandwidth = 0;  ///< B/s that one rank sends to the next while it receives as much
  double all_to_all_bandwidth = 0;  ///< B/s that one rank sends to all others while all do so
};

struct RingInputs {
  RingLoad load;
  int ranks = 1;
  RingShape shape;
  RingRates rates;
};

/// (1) Queries are the smaller message up to this miss rate T/(T+P): 2·Hkv·e_kv / (Hq·e_q).
double miss_rate_of_equal_messages(const RingInputs& in);
/// (2) Travelling keys hide under attention from this number of new tokens on:
/// N·C·Hkv·e_kv / (2·Hq·BW). In a shared pass new tokens count per key: pairs / keys.
double new_tokens_that_hide_kv(const RingInputs& in);
/// (3) Travelling queries hide from this number of tokens T+P on: N·C·e_q / (4·BW). In a shared
/// pass keys count per new token: pairs / new_tokens.
double tokens_that_hide_q(const RingInputs& in);

bool q_is_smaller(const RingInputs& in);
bool kv_is_hidden(const RingInputs& in);
bool q_is_hidden(const RingInputs& in);

/// A choice, with the values that led to it. Keys travel when they are hidden (rules A and B) or
/// when the miss rate is `miss_rate_limit` or more.
struct RingDecision {
  RingInputs in;
  double hiding_tokens = 0;  ///< value of condition (2)
  double miss_rate_limit = 0;
  std::optional<double> h = {};  ///< of a fitted rule, which decided instead (fitted_rule.hpp)
  AttentionExchange ring = AttentionExchange::pass_kv;
};

/// Applies rule B, which counts the all-to-all of pass-Q too. The limit is
/// (2·Hkv·e_kv/Hq − 4·T·BW/(N·C)) · BW_a/BW / e_out.
RingDecision rule_b(const RingInputs& in);

}  // namespace pecia::parallel
