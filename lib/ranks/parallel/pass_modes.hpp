// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Turns a job's modes into the sharding and the ring that each pass of a run takes.

#include <cstdint>
#include <optional>

#include "lib/ranks/parallel/modes.hpp"
#include "lib/ranks/parallel/sharding.hpp"

namespace pecia::parallel {

struct PassModes {
  Sharding prefill = Sharding::base;  ///< for passes with prompt tokens
  Sharding decode = Sharding::base;   ///< for passes without prompt tokens
  AttentionExchange decode_ring = AttentionExchange::pass_q;
  /// A pass with at most this number of new tokens runs in the shift configuration.
  std::optional<int64_t> shift_threshold = {};
  /// A pass with prompt tokens, but fewer new tokens than this, gathers rows (SP-TP) in place of
  /// weights (SP-NTP). Source: CSPS §3.2.1, where each request is read in the way that moves less.
  std::optional<int64_t> gather_threshold = {};

  Sharding sharding(int64_t new_tokens, bool prefills) const {
    if (shift_threshold && new_tokens <= *shift_threshold) return Sharding::shift;
    if (!prefills) return decode;
    return gather_threshold && new_tokens < *gather_threshold ? Sharding::sp_tp : prefill;
  }
};

/// Returns the pass modes for a legal pair of modes. `shift_threshold` has a meaning only with
/// decode shift, and `gather_threshold` only with prefill ulysses over TP alone.
PassModes pass_modes(const ModePair& modes, std::optional<int64_t> shift_threshold,
                     std::optional<int64_t> gather_threshold = {});

}  // namespace pecia::parallel
