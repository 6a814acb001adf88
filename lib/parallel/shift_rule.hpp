// SPDX-License-Identifier: Apache-2.0
#pragma once
/// From how many new tokens on a pass is faster in the base configuration than in the shift
/// configuration: what `shift_threshold: auto` becomes.
///
/// A step of T tokens, one of each sequence, on SP × TP ranks, in seconds, with W the bytes of all
/// layers' weights and of the vocabulary matrix, and F their FLOPs for a token:
///
///     base    max(W / TP / read, T·F / (SP·TP) / flops) + sent / link + exchanges
///     shift   max(W / (SP·TP) / read, T·F / (SP·TP) / flops) + sent / link + exchanges
///     sent, exchanges: bytes that a rank sends, T times those of one token, and seconds of its
///     exchanges
///
/// Shift reads fewer weights and waits for sums of all activations, base the other way round.
/// Source: Shift Parallelism, §3.3 (which leaves the threshold to be tuned).

#include "lib/parallel/sharding.hpp"

namespace pecia::parallel {

/// Bytes that one rank sends in one layer for each new token of a pass, in either configuration.
struct SentPerToken {
  double base = 0, shift = 0;
};

struct ShiftInputs {
  int64_t layer_elements = 0;  ///< weights of one layer
  int64_t vocab_elements = 0;  ///< weights of the vocabulary matrix
  int64_t weight_bytes = 4;    ///< of one element
  int64_t layers = 1;
  int sp = 1, tp = 1;
  SentPerToken sent;
  double flops = 0;           ///< FLOP/s of matrix products on one rank
  double read_bandwidth = 0;  ///< B/s of weights through a product with one row, on one rank
  double link_bandwidth = 0;  ///< B/s that one rank sends while it receives as much
  double exchange_s = 0;      ///< of one exchange of a few bytes in the block
};

/// Predicted seconds of a pass of `new_tokens` rows that all ask for logits; base or shift.
double step_seconds(const ShiftInputs& inputs, Sharding sharding, int64_t new_tokens);

/// The most new tokens, up to `limit`, of which no fewer are faster in base; 0: always base.
int64_t shift_threshold(const ShiftInputs& inputs, int64_t limit);

}  // namespace pecia::parallel
