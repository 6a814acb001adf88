// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Decides what `auto` becomes, and gives the reason in words.

#include "lib/base/core/reasons.hpp"
#include "lib/ranks/parallel/modes.hpp"

namespace pecia::parallel {

/// Returns the fewest new tokens T of a prefill pass for which SP-NTP (gather each layer's weights,
/// then move heads) moves fewer elements than SP-TP (gather the tokens, scatter the sums), over
/// N = `tp` ranks that hold the weights in slices. It is absent if there is no such number. The
/// formulas count the elements of one layer on all ranks together. A KV head is held by
/// r = max(1, N / Hkv) ranks.
///
///     SP-NTP  weights: each rank lacks (N−1)/N of   W = 2·E·Hq·D + 2·E·Hkv·D + 3·E·F
///             heads:   each rank sends (N−1)/N of its T/N rows of Q, K, V, and of O back
///             (W + (2·Hq + 2·Hkv·r)·D·T/N)·(N−1)
///     SP-TP   attention and FFN each gather T rows of E and scatter as many
///             4·T·E·(N−1)
///
/// With ffn = 0 only the attention counts, and SP-TP moves 2·T·E·(N−1). If also Hkv = Hq and
/// E = Hq·D, the comparison is (4·E² + 4·T·E/N)·(N−1) against 2·T·E·(N−1). The first is less when
/// T > 2·E·N/(N−2), and never at N = 2. With an FFN, gathering can pay at N = 2 as well, from
/// T > 2·E + 1.5·F on.
/// Source: Communication-Efficient Sequence-Parallelism based Serving, §3.2.1.
std::optional<int64_t> gather_threshold(const ModelShape& model, int tp);

/// The model of which prefill moves weights or rows: experts that are dealt out stay where they are.
ModelShape moved_shape(const Degrees& degrees, ModelShape model);

struct ModeChoice {
  PrefillMode prefill = PrefillMode::single;
  std::optional<AttentionExchange>
      ring;  ///< absent: a rule chooses turn by turn, or there is no ring
  DecodeMode decode = DecodeMode::single;
  /// With prefill ulysses over TP alone: passes with fewer new tokens are sp_tp.
  std::optional<int64_t> gather_threshold = {};
  Reasons reasons;  ///< one for each mode that was auto
};

/// Decides every auto of the setting, for prefill passes of at most `max_batch_tokens` new tokens.
/// The setting must be legal for the model: `refusal` returns none for it.
ModeChoice choose_modes(const Setting& setting, const ModelShape& model, int64_t max_batch_tokens);

}  // namespace pecia::parallel
