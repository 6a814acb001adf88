// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Which sharding and ring each pass of a run takes: what a job's modes come to.

#include <cstdint>
#include <optional>

#include "lib/parallel/modes.hpp"
#include "lib/parallel/sharding.hpp"

namespace pecia::parallel {

struct PassModes {
  Sharding prefill = Sharding::base;  ///< of passes with prompt tokens
  Sharding decode = Sharding::base;   ///< of passes without
  Ring decode_ring = Ring::pass_q;
  /// Passes of at most so many new tokens run in the shift configuration.
  std::optional<int64_t> shift_threshold = {};

  Sharding sharding(int64_t new_tokens, bool prefills) const {
    if (shift_threshold && new_tokens <= *shift_threshold) return Sharding::shift;
    return prefills ? prefill : decode;
  }
};

/// Of a legal pair of modes. `shift_threshold` counts with decode shift alone.
PassModes pass_modes(const ModePair& modes, std::optional<int64_t> shift_threshold);

}  // namespace pecia::parallel
