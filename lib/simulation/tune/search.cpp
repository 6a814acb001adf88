// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/tune/search.hpp"

#include <algorithm>
#include <ranges>
#include <tuple>

#include "lib/base/core/error.hpp"
#include "lib/ranks/parallel/level_time.hpp"

namespace pecia::tune {

std::vector<double> fine_drops() {
  constexpr int steps = 48, steps_of_all = 50;
  std::vector<double> drops;
  for (int step = 0; step < steps; ++step)
    drops.push_back(static_cast<double>(step) / steps_of_all);
  return drops;
}

namespace {

bool keeps_cost(const Goal& goal, const Found& found) {
  if (goal.loss) return found.loss <= std::max(*goal.loss, no_loss);
  return found.ttft_s <= *goal.ttft_s;
}

bool retrieves_enough(const Goal& goal, const Found& found) {
  return found.retrieval >= goal.retrieval.value_or(0);
}

}  // namespace

namespace {

parallel::Micros fastest_micros(Setting setting, const Candidates& candidates, const Costs& costs) {
  if (candidates.given) return *candidates.given;
  return parallel::best_micros(candidates.micros, setting.levels - 1,
                               [&](const parallel::Micros& micros) {
                                 setting.micros = micros;
                                 return costs.ttft_s(setting);
                               });
}

}  // namespace

bool meets(const Goal& goal, const Found& found) {
  return keeps_cost(goal, found) && retrieves_enough(goal, found);
}

bool better(const Goal& goal, const Found& a, const Found& b) {
  const auto rank = [&](const Found& found) {
    const double first = goal.loss ? found.ttft_s : found.loss;
    const double second = goal.loss ? found.loss : found.ttft_s;
    return std::tuple(first, second, found.setting.drop, found.setting.levels, found.setting.micros,
                      found.setting.deal);
  };
  return rank(a) < rank(b);
}

std::optional<Found> search(const Goal& goal, const Candidates& candidates, const Costs& costs) {
  PECIA_CHECK(goal.loss.has_value() != goal.ttft_s.has_value(), "not one goal");
  std::optional<Found> best;
  const auto branch = [&](int levels, Deal deal) {
    // Returns whether the branch goes on.
    const auto look = [&](double drop) {
      if (drop == 0 && deal != Deal::even) return true;  // the even branch has it
      Setting setting{drop, levels, {1}, deal};
      const double loss = costs.loss(setting);
      if (goal.loss && !keeps_cost(goal, {setting, loss})) return false;
      setting.micros = fastest_micros(setting, candidates, costs);
      const Found found{setting, loss, costs.ttft_s(setting), costs.retrieval(setting)};
      if (!keeps_cost(goal, found)) return false;
      if (retrieves_enough(goal, found) && (!best || better(goal, found, *best))) best = found;
      return true;
    };
    if (goal.loss) {
      for (const double drop : candidates.drops)
        if (!look(drop)) return;
      return;
    }
    for (const double drop : candidates.drops)
      if (drop == 0) look(drop);
    for (const double drop : std::views::reverse(candidates.drops))
      if (!look(drop)) return;
  };
  for (const int levels : candidates.levels)
    for (const Deal deal : candidates.deals) branch(levels, deal);
  return best;
}

std::optional<Found> best_of(const Goal& goal, const std::vector<Found>& all) {
  std::optional<Found> best;
  for (const Found& found : all)
    if (meets(goal, found) && (!best || better(goal, found, *best))) best = found;
  return best;
}

Found nearest(const Goal& goal, const Candidates& candidates, const Costs& costs) {
  PECIA_CHECK(!candidates.drops.empty() && !candidates.levels.empty(), "no candidates");
  std::optional<Found> best;
  const Goal opposite = goal.loss ? Goal{{}, 0.0} : Goal{0.0, {}};  // ranks by what the goal bounds
  for (const int levels : candidates.levels)
    for (const Deal deal : candidates.deals)
      for (const double drop : candidates.drops) {
        if (drop == 0 && deal != Deal::even) continue;
        Setting setting{drop, levels, {1}, deal};
        setting.micros = fastest_micros(setting, candidates, costs);
        const Found found = costs.of(setting);
        const bool enough = retrieves_enough(goal, found);
        if (best && retrieves_enough(goal, *best) != enough
                ? enough
                : !best || better(opposite, found, *best))
          best = found;
      }
  return *best;
}

}  // namespace pecia::tune
