// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What `auto` becomes, with the reason in words.

#include "lib/parallel/modes.hpp"

namespace pecia::parallel {

/// Whether SP-NTP (gather each layer's weights, then move heads) moves fewer elements than SP-TP
/// (gather the tokens, scatter the sums) in a prefill pass of T = `new_tokens` tokens over N = `tp`
/// ranks that hold the weights in slices. Elements of one layer, all ranks together; r ranks hold a
/// KV head, r = max(1, N / Hkv):
///
///     SP-NTP  weights: each rank lacks (N−1)/N of   W = 2·E·Hq·D + 2·E·Hkv·D + 3·E·F
///             heads:   each rank sends (N−1)/N of its T/N rows of Q, K, V, and of O back
///             (W + (2·Hq + 2·Hkv·r)·D·T/N)·(N−1)
///     SP-TP   attention and FFN each gather T rows of E and scatter as many
///             4·T·E·(N−1)
///
/// ffn = 0 counts the attention alone: 2·T·E·(N−1) for SP-TP. With Hkv = Hq and E = Hq·D that is
/// (4·E² + 4·T·E/N)·(N−1) against 2·T·E·(N−1), of which the first is less when T > 2·E·N/(N−2) and
/// never at N = 2. With an FFN gathering can pay at N = 2 as well: from T > 2·E + 1.5·F on.
/// Source: Communication-Efficient Sequence-Parallelism based Serving, §3.2.1.
bool gather_pays(const ModelShape& model, int tp, int64_t new_tokens);

struct ModeChoice {
  PrefillMode prefill = PrefillMode::single;
  std::optional<RingMode> ring;  ///< absent: by rule, turn by turn; or no ring
  DecodeMode decode = DecodeMode::single;
  std::string why;  ///< a clause for each mode that was auto; empty where none was
};

/// The setting with every auto decided, for prefill passes of at most `max_batch_tokens` new
/// tokens. The setting is legal for the model (refusal has none).
ModeChoice choose_modes(const Setting& setting, const ModelShape& model, int64_t max_batch_tokens);

}  // namespace pecia::parallel
