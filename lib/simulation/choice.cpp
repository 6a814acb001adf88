// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/choice.hpp"

#include <algorithm>

#include "lib/base/core/error.hpp"
#include "lib/base/report/format.hpp"

namespace pecia::simulation {
namespace {

/// The largest number of rows up to which a step that shifts takes no longer than one that does not.
int64_t shift_threshold(PassCosts& costs, const LayoutForecast& plan, Batches& batches) {
  const ReplicaPasses passes(costs, plan.resources, plan.fidelity);
  const Batch& batch = batches.of(costs.scenario().job, plan.resources);
  const auto shifts = [&](int64_t rows) {
    PassShape shape = passes.step(plan.resources.cp, 0, rows, batch.mean_context());
    shape.sharding = parallel::Sharding::shift;
    PassShape base = shape;
    base.sharding = parallel::Sharding::base;
    return passes.cost(shape).seconds <= passes.cost(base).seconds;
  };
  int64_t most = 1;  // shifts
  while (2 * most <= plan.resources.max_batch_tokens && shifts(2 * most)) most *= 2;
  int64_t beyond = std::min(2 * most, plan.resources.max_batch_tokens + 1);  // does not
  while (beyond - most > std::max<int64_t>(1, most / 8)) {
    const int64_t middle = most + (beyond - most) / 2;
    (shifts(middle) ? most : beyond) = middle;
  }
  return most;
}

bool is_better(const LayoutForecast& plan, const LayoutForecast& than, Aim aim) {
  return plan.end && (!than.end || plan.seconds(aim) < (1 - least_gain) * than.seconds(aim));
}

/// Fewer tokens in a pass, where that gains.
void choose_batch_tokens(PassCosts& costs, Batches& batches, Choice& choice) {
  const job::Job& job = costs.scenario().job;
  if (job.batch.max_batch_tokens || job.reproducible == parallel::Reproducible::layout) return;
  constexpr int64_t fewest = 128;
  const int64_t by_rule = choice.chosen.resources.max_batch_tokens;
  for (const int64_t divisor : {2, 4}) {
    if (by_rule / divisor < fewest) return;
    LayoutForecast fewer =
        forecast(costs, batches, choice.chosen.parallel, choice.chosen.ranks, by_rule / divisor);
    if (fewer.fidelity != choice.chosen.fidelity) continue;  // times of one kind compare
    if (!is_better(fewer, choice.chosen, choice.aim)) continue;
    choice.chosen = std::move(fewer);
    choice.tokens_by_rule = false;
  }
}

void choose_shifts(PassCosts& costs, Batches& batches, Choice& choice) {
  LayoutForecast& chosen = choice.chosen;
  if (chosen.resources.decode != parallel::DecodeMode::shift || chosen.parallel.shift_threshold)
    return;
  job::Job::Parallel parallel = chosen.parallel;
  parallel.shift_threshold = shift_threshold(costs, chosen, batches);
  chosen = forecast(costs, batches, parallel, chosen.ranks, chosen.resources.max_batch_tokens);
}

}  // namespace

KeptDegrees kept_degrees(const job::Job::Parallel& parallel) {
  return {parallel.dp, parallel.pp, parallel.cp.degree, parallel.sp, parallel.tp, parallel.ep};
}

job::Job::Parallel layout_by_rule(const Scenario& scenario, int ranks) {
  resources::Resources resources;
  resources.gpus = scenario.cluster.rank.gpu;
  resources::resolve_grid(scenario.job, scenario.config, ranks, resources);
  job::Job::Parallel layout = scenario.job.parallel;
  // Levels take ranks of SP for ranks of CP; the job's grid has them where they were.
  layout.sp = resources.sparse ? layout.sp.value_or(1) : resources.sp;
  layout.dp = resources.dp, layout.pp = resources.pp, layout.tp = resources.tp,
  layout.ep = resources.ep;
  layout.cp.degree = ranks / (resources.dp * resources.pp * *layout.sp * resources.tp);
  if (resources.degrees().ranks() == 1) return layout;
  if (!layout.prefill) layout.gather_threshold = resources.gather_threshold;
  if (!layout.prefill) layout.prefill = resources.prefill;
  if (!layout.decode) layout.decode = resources.decode;
  return layout;
}

std::optional<Choice> choose(PassCosts& costs, Batches& batches, int ranks) {
  Choice choice;
  const job::Job& job = costs.scenario().job;
  const bool arrive = batches.alone().requests().front().arrival_s.has_value();
  choice.aim = arrive ? Aim::first_token : Aim::batch_end;
  Sweep found = sweep(costs, batches,
                      {.ranks = {ranks}, .kept = kept_degrees(job.parallel), .aim = choice.aim});
  if (!found.plans.front().end) return {};
  choice.counts = found.counts;
  choice.by_rule = forecast(costs, batches, layout_by_rule(costs.scenario(), ranks), ranks);
  const bool is_open = !job.parallel.dp || !job.parallel.pp || !job.parallel.sp || !job.parallel.tp;
  const bool gains = is_open || is_better(found.plans.front(), choice.by_rule, choice.aim);
  choice.chosen = gains ? found.plans.front() : choice.by_rule;
  for (LayoutForecast& plan : found.plans)
    if (plan.end && layout_text(plan) != layout_text(choice.chosen))
      choice.others.push_back(std::move(plan));
  choose_batch_tokens(costs, batches, choice);
  choose_shifts(costs, batches, choice);
  return choice;
}

std::string layout_text(const LayoutForecast& plan) {
  const resources::Resources& resources = plan.resources;
  std::string text;
  for (const auto& [name, degree] : {std::pair("dp", resources.dp), std::pair("pp", resources.pp),
                                     std::pair("cp", resources.cp), std::pair("sp", resources.sp),
                                     std::pair("tp", resources.tp), std::pair("ep", resources.ep)})
    if (degree > 1) text += fmt::format("{}{} {}", text.empty() ? "" : " × ", name, degree);
  return fmt::format("{}{}{}", text, text.empty() ? "" : ", ", resources::mode_name(resources));
}

std::string choice_text(const Choice& choice) {
  const auto seconds = [&](const LayoutForecast& plan) {
    return plan.end ? report::format_duration(plan.seconds(choice.aim))
                    : std::string("does not fit");
  };
  std::string text =
      fmt::format("{} foreseen {}", seconds(choice.chosen),
                  choice.aim == Aim::batch_end ? "for this batch" : "to a first token, on average");
  if (layout_text(choice.by_rule) != layout_text(choice.chosen))
    text += fmt::format(", by rule ({}) {}", layout_text(choice.by_rule), seconds(choice.by_rule));
  if (!choice.others.empty())
    text += fmt::format(", with {} {}", layout_text(choice.others.front()),
                        seconds(choice.others.front()));
  text += fmt::format("; {} layouts", choice.counts.layouts);
  if (choice.chosen.fidelity == Fidelity::one_rank) text += ", this one as one rank foresees it";
  if (choice.counts.open > 0)
    text += fmt::format(", {} of which were not compared", choice.counts.open);
  return text;
}

}  // namespace pecia::simulation
