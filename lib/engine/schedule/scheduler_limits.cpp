// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/scheduler_limits.hpp"

#include "lib/base/core/error.hpp"
#include "lib/ranks/parallel/virtual_ranks.hpp"

namespace pecia::schedule {

void SchedulerLimits::verify() const {
  PECIA_CHECK(max_sequences >= 1 && max_batch_tokens >= 1, "{} sequences, {} tokens", max_sequences,
              max_batch_tokens);
  const parallel::RingRates& rates = ring_rates;
  PECIA_CHECK(ring_size == 1 || ring ||
                  std::min({rates.flops, rates.bandwidth, rates.all_to_all_bandwidth}) > 0,
              "a ring by rule with rates of {} FLOP/s, {} B/s and {} B/s", rates.flops,
              rates.bandwidth, rates.all_to_all_bandwidth);
  PECIA_CHECK(!waits_least() || team_times, "an order by expected times without them");
  PECIA_CHECK(!tbt_s || (team_times && *tbt_s > 0), "{} s between tokens, by expected times",
              tbt_s.value_or(0));
  PECIA_CHECK(!tbt_s || !(layout_invariant || levels_from),
              "passes that are cut by time, and results that depend on where they are cut");
  PECIA_CHECK(scheduler == job::TeamScheduler::greedy ||
                  (elastic && team_times && policy == job::Policy::prefill_first),
              "batches of teams without teams that change, their times or prefill_first");
  PECIA_CHECK(answering >= 0 && answering < ring_size && (apart() || !fixed_parts),
              "{} of {} instances answer, in {} parts", answering, ring_size,
              fixed_parts ? "fixed" : "changing");
  PECIA_CHECK(
      !apart() || (elastic && scheduler == job::TeamScheduler::greedy),
      "instances that answer, without teams that change, or with requests dealt in batches");
  PECIA_CHECK(stages >= 1 && (!overlaps() || (!elastic && !waits_least() && !tbt_s)),
              "{} stages, with teams that change or an order by times", stages);
  PECIA_CHECK(row_work > 0 && pair_work >= 0, "work of {} and {}", row_work, pair_work);
  PECIA_CHECK(!drafts.by_price || time || pass_times || (elastic && team_times),
              "drafts by price, without times of passes");
  PECIA_CHECK(block >= 1, "blocks of {} tokens", block);
  PECIA_CHECK(!elastic || !layout_invariant,
              "teams that change, and results that do not depend on the layout");
  PECIA_CHECK(!layout_invariant || parallel::can_play_layout(ring_size), "{} ranks cannot play {}",
              ring_size, parallel::layout_ranks);
}

}  // namespace pecia::schedule
