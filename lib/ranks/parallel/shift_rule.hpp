// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Finds the number of new tokens above which a pass is faster in the base configuration than in
/// the shift configuration. `shift_threshold: auto` becomes this number.
///
/// The formulas give the seconds of a step of T tokens, one of each sequence, on SP × TP ranks. W
/// is the bytes of all layers' weights and of the vocabulary matrix. F is their FLOPs for a token:
///
///     base    max(W / TP / read, T·F / (SP·TP) / flops) + sent / link + exchanges
///     shift   max(W / (SP·TP) / read, T·F / (SP·TP) / flops) + sent / link + exchanges
///     sent, exchanges: bytes that a rank sends, T times the bytes of one token, and seconds of its
///     exchanges
///
/// Shift reads fewer weights but waits for sums of all activations. Base does the opposite.
/// Source: Shift Parallelism, §3.3 (which leaves the threshold to be tuned).

#include "lib/ranks/parallel/sharding.hpp"

namespace pecia::parallel {

/// Bytes that one rank sends in one layer for each new token of a pass, in either configuration.
struct SentPerToken {
  double base = 0, shift = 0;
};

struct ShiftInputs {
  int64_t layer_elements = 0;  ///< weights of one layer
  int64_t vocab_elements = 0;  ///< weights of the vocabulary matrix
  double weight_bytes = 4;     ///< bytes of one element of a layer, on average
  double vocab_bytes = 4;      ///< bytes of one element of the vocabulary matrix
  int64_t layers = 1;
  int sp = 1, tp = 1;
  SentPerToken sent;
  double flops = 0;           ///< FLOP/s of matrix products on one rank
  double read_bandwidth = 0;  ///< B/s of weights through a product with one row, on one rank
  double link_bandwidth = 0;  ///< B/s that one rank sends while it receives as much
  double exchange_s = 0;      ///< seconds of one exchange of a few bytes in the block
};

/// Predicts the seconds of a pass of `new_tokens` rows that all ask for logits. `sharding` is base
/// or shift.
double step_seconds(const ShiftInputs& inputs, Sharding sharding, int64_t new_tokens);

/// Returns the largest number of new tokens up to `limit` such that base is faster neither for this
/// number nor for a smaller one. 0 means that base always runs.
int64_t shift_threshold(const ShiftInputs& inputs, int64_t limit);

}  // namespace pecia::parallel
