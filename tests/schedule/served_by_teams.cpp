// SPDX-License-Identifier: Apache-2.0
#include "tests/schedule/served_by_teams.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "lib/base/core/error.hpp"
#include "tests/schedule/fake_teams.hpp"
#include "tests/schedule/journal_replay.hpp"

namespace pecia::test {

using batch::Finished;
using batch::Request;
using schedule::Plan;
using schedule::Scheduler;
using schedule::SchedulerLimits;

double busiest_rows(const Plan& plan) {
  const auto [prompts, answers] = busiest_work(plan);
  return prompts.rows + answers.rows;
}

ServedByTeams serve_by_teams(const SchedulerLimits& limits, const std::vector<Request>& requests,
                             Draw& draw) {
  Scheduler scheduler(limits);
  FakeInstances instances(limits);
  ServedByTeams served;
  JournalReplay journal;
  std::vector<Plan> under_way;
  std::set<int32_t> busy;
  size_t added = 0;
  for (double now = 0;;) {
    while (added < requests.size() && (under_way.empty() || !draw.one_in(3)))
      scheduler.add(requests[added++], now);
    while (auto plan = scheduler.next(now)) {
      ++served.passes;
      PECIA_CHECK(served.passes < 20000, "{} passes and no end", served.passes);
      const parallel::Team& team = plan->teams.front();
      for (const int32_t instance : team.instances)
        PECIA_CHECK(busy.insert(instance).second, "instance {} is in a pass already", instance);
      served.side_by_side += under_way.empty() ? 0 : 1;
      served.wide += team.workers() > 1 ? 1 : 0;
      served.with_holders += team.holders > 0 ? 1 : 0;
      for (const schedule::PlanItem& item : plan->items) served.gathered += item.gathers;
      served.shrinks += moves_between(*plan);
      for (const int32_t instance : team.instances)
        for (const schedule::PlanItem& item : plan->items)
          PECIA_CHECK(limits.answers(instance) || item.sampled_index <= 0,
                      "instance {} has answers", instance);
      journal.take(scheduler.take_yields(), *plan, true);
      instances.send(*plan);
      served.returned += std::ssize(plan->returned);
      under_way.push_back(std::move(*plan));
    }
    for (Finished& finished : scheduler.take_finished()) {
      const int64_t row = finished.row;
      PECIA_CHECK(served.rows.emplace(row, std::move(finished)).second, "row {} twice", row);
    }
    if (under_way.empty() && added == requests.size()) break;
    if (under_way.empty()) continue;
    const auto ended = under_way.begin() + draw(0, std::ssize(under_way) - 1);
    for (const int32_t instance : ended->teams.front().instances) busy.erase(instance);
    now += 1e-3 * busiest_rows(*ended);
    scheduler.commit(*ended, instances.execute(*ended), now);
    scheduler.verify();
    under_way.erase(ended);
  }
  EXPECT_EQ(scheduler.running() + scheduler.waiting() + scheduler.num_under_way(), 0);
  served.penalized = instances.penalized;
  served.copies = instances.copies;
  served.scale_ups = scheduler.scale_ups();
  served.demand = scheduler.demand();
  served.drafts = scheduler.draft_counts();
  journal.check_end(scheduler);
  return served;
}

SchedulerLimits random_teams(Draw& draw, const std::vector<Request>& requests) {
  SchedulerLimits limits = random_limits(draw, requests);
  limits.elastic = true;
  if (!draw.one_in(3))
    limits.team_times = even_times(limits.ring_size, 1e-6, 1e-5);
  else
    limits.team_times.reset();
  if (limits.team_times && draw.one_in(2)) limits.objective = job::Objective::ttft;
  if (limits.team_times && limits.policy == job::Policy::prefill_first && draw.one_in(2))
    limits.scheduler = job::TeamScheduler::loongserve;
  limits.parts.interrupts = !draw.one_in(4);
  if (!limits.team_times) limits.tbt_s.reset(), limits.objective = job::Objective::throughput;
  return limits;
}

void set_apart(SchedulerLimits& limits, Draw& draw) {
  limits.answering = static_cast<int>(draw(1, limits.ring_size - 1));
  limits.fixed_parts = draw.one_in(2);
  limits.scheduler = job::TeamScheduler::greedy;
}

int64_t least_slots(const SchedulerLimits& limits, const std::vector<Request>& requests) {
  SchedulerLimits counting = limits;
  counting.kv_tokens = 0;
  const Scheduler scheduler(counting);
  int64_t most = 0;
  for (const Request& request : requests) most = std::max(most, scheduler.tokens_needed(request));
  const int64_t instances = limits.answering_instances().most;
  return (most + instances - 1) / instances;
}

}  // namespace pecia::test
