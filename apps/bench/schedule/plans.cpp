// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/schedule/plans.hpp"

#include <algorithm>
#include <bit>

#include "lib/base/core/archive.hpp"
#include "lib/engine/schedule/simulate.hpp"

namespace pecia::bench {

PlanBytes plan_bytes(int64_t ranks, int64_t sequences) {
  constexpr int64_t prompt_tokens = 1000, answer_tokens = 64;
  schedule::SchedulerLimits limits;
  limits.ring_size = static_cast<int>(ranks);
  limits.kv_tokens = sequences * 2 * (prompt_tokens + answer_tokens);
  limits.max_sequences = sequences;
  limits.max_batch_tokens = 8192;
  limits.max_positions = 1 << 20;
  limits.vocab = 32000;
  PlanBytes largest;
  const schedule::PassSeconds seconds = [&](const schedule::Plan& plan) {
    const bool reads = std::ranges::any_of(
        plan.items, [](const schedule::PlanItem& item) { return item.rows.is_shared(); });
    int64_t& most = reads ? largest.prefill : largest.decode;
    most = std::max<int64_t>(most, std::ssize(to_bytes(plan)));
    return 1.0;
  };
  const std::vector<schedule::SimulatedRequest> requests(
      sequences, {.turns = {{prompt_tokens, answer_tokens}}});
  const schedule::Simulation found = simulate(limits, seconds, requests);
  PECIA_CHECK(found.answered == sequences, "{} of {} answered", found.answered, sequences);
  return largest;
}

double tree_seconds(int64_t ranks, int64_t bytes, double message_s, double bytes_per_second) {
  const int steps = std::bit_width(static_cast<uint64_t>(ranks - 1));
  return steps * (message_s + static_cast<double>(bytes) / bytes_per_second);
}

}  // namespace pecia::bench
