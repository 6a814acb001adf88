// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/pass_modes.hpp"

namespace pecia::parallel {

PassModes pass_modes(const ModePair& modes, std::optional<int64_t> shift_threshold,
                     std::optional<int64_t> gather_threshold) {
  PassModes passes;
  if (modes.prefill == PrefillMode::sp_tp) passes.prefill = Sharding::sp_tp;
  if (gathers_weights(modes.degrees, modes.prefill)) {
    passes.prefill = Sharding::gathered;
    passes.gather_threshold = gather_threshold;
  }
  if (modes.decode == DecodeMode::broadcast_q) passes.decode_ring = AttentionExchange::broadcast_q;
  if (modes.decode == DecodeMode::shift) passes.shift_threshold = shift_threshold;
  return passes;
}

}  // namespace pecia::parallel
