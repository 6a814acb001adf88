// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/pass_modes.hpp"

namespace pecia::parallel {

PassModes pass_modes(const ModePair& modes, std::optional<int64_t> shift_threshold) {
  PassModes passes;
  if (modes.prefill == PrefillMode::sp_tp) passes.prefill = Sharding::sp_tp;
  if (modes.prefill == PrefillMode::ulysses && modes.degrees.sp == 1)
    passes.prefill = Sharding::gathered;
  if (modes.decode == DecodeMode::broadcast_q) passes.decode_ring = AttentionExchange::broadcast_q;
  if (modes.decode == DecodeMode::shift) passes.shift_threshold = shift_threshold;
  return passes;
}

}  // namespace pecia::parallel
