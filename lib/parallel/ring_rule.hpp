// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Which tensor should travel round the ring: keys and values, or queries. Pure functions of what a
/// pass computes, the model's shape and three rates.
///
/// With T new and P cached tokens on N ranks, e_kv, e_q and e_out the bytes of an element that
/// travels, C the FLOP/s of one rank, BW and BW_a the B/s that it sends round the ring and to all
/// others at once, a ring step of one layer takes
///
///     attention    4·T·(T+P)·Hq·D / (N²·C)
///     pass-KV      2·(T+P)·Hkv·D·e_kv / (N·BW)
///     pass-Q       T·Hq·D·e_q / (N·BW), and afterwards, N−1 times and exposed, the all-to-all's
///                  T·Hq·D·e_out / (N·BW_a)
///
/// Over links shared by a server or a rack BW_a is below BW: of a ring one message crosses each
/// way, of an all-to-all one from each rank of one side to each of the other. The head's width D
/// cancels out of every condition; the log-sum-exp that goes home with each D elements of output is
/// left out (1/D of them). With one e for all three the conditions are those of the paper. Source:
/// Context Parallelism for Scalable Million-Token Inference.

#include <cstdint>

#include "lib/parallel/pass.hpp"

namespace pecia::parallel {

/// What a pass attends. For one sequence T = new_tokens, T+P = keys and T·(T+P) = pairs; sequences
/// that share a pass, and so its messages, add up, where the products above become sums of
/// products.
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
  double kv_bytes = 4;   ///< of an element of K or V as the cache has it, with its share of a scale
  double q_bytes = 4;    ///< of an element of Q
  double out_bytes = 4;  ///< of an element of a partial output on its way home
};

struct RingRates {
  double flops = 0;      ///< FLOP/s of attention on one rank
  double bandwidth = 0;  ///< B/s that one rank sends to the next while it receives as much
  double all_to_all_bandwidth = 0;  ///< B/s that one rank sends to all others while all do
};

struct RingInputs {
  RingLoad load;
  int ranks = 1;
  RingShape shape;
  RingRates rates;
};

/// (1) Queries are the smaller message up to this miss rate T/(T+P): 2·Hkv·e_kv / (Hq·e_q).
double miss_rate_of_equal_messages(const RingInputs& in);
/// (2) Travelling keys hide under attention from this many new tokens on: N·C·Hkv·e_kv / (2·Hq·BW).
/// In a shared pass new tokens count per key: pairs / keys.
double new_tokens_that_hide_kv(const RingInputs& in);
/// (3) Travelling queries hide from this many tokens T+P on: N·C·e_q / (4·BW). In a shared pass
/// keys count per new token: pairs / new_tokens.
double tokens_that_hide_q(const RingInputs& in);

bool q_is_smaller(const RingInputs& in);
bool kv_is_hidden(const RingInputs& in);
bool q_is_hidden(const RingInputs& in);

/// A choice with what it was made of: keys travel when they are hidden (rules A and B) or when the
/// miss rate is `miss_rate_limit` or more.
struct RingDecision {
  RingInputs in;
  double hiding_tokens = 0;  ///< of condition (2)
  double miss_rate_limit = 0;
  Ring ring = Ring::pass_kv;
};

/// Rule B, which counts the all-to-all of pass-Q too: the limit is
/// (2·Hkv·e_kv/Hq − 4·T·BW/(N·C)) · BW_a/BW / e_out.
RingDecision rule_b(const RingInputs& in);

}  // namespace pecia::parallel
