// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/execute/team_timeline.hpp"

#include <algorithm>
#include <ranges>

#include "lib/engine/execute/replica_totals.hpp"

namespace pecia::execute {

void TeamTimeline::add(const schedule::Plan& plan, double begin_s, double end_s) {
  constexpr double gap_s = 0.02;
  const parallel::Team& team = plan.teams.front();
  TeamSpan span{begin_s,
                end_s,
                team.instances,
                team.workers(),
                new_tokens(plan).prompt > 0,
                plan.items.front().rows.sequence};
  // The last span of any of these instances is the one that this pass may go on with.
  for (TeamSpan& last : std::views::reverse(spans_)) {
    const bool meets =
        std::ranges::find_first_of(last.instances, span.instances) != last.instances.end();
    if (!meets) continue;
    if (last.instances != span.instances || last.workers != span.workers ||
        last.prompts != span.prompts || last.sequence != span.sequence ||
        begin_s - last.end_s > gap_s)
      break;
    last.end_s = end_s;
    return;
  }
  spans_.push_back(std::move(span));
  if (spans_.size() > most_spans) leave_out_short_ones();
}

void TeamTimeline::leave_out_short_ones() {
  constexpr double first_s = 1e-3;
  while (spans_.size() > most_spans / 2) {
    least_s_ = std::max(first_s, 2 * least_s_);
    std::erase_if(spans_,
                  [&](const TeamSpan& span) { return span.end_s - span.begin_s < least_s_; });
  }
}

}  // namespace pecia::execute
