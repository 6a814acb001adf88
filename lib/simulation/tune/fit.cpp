// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "lib/base/core/error.hpp"
#include "lib/simulation/tune/folds.hpp"
#include "lib/simulation/tune/tuned.hpp"

namespace pecia::tune {
namespace {

Costs costs_of(const LossModel& loss, const TimeModel& time, const std::vector<LevelChoice>& levels,
               int64_t tokens) {
  return {[&loss, tokens](const Setting& setting) { return loss.bound(tokens, setting); },
          [&time, &levels, tokens](const Setting& setting) {
            const LevelChoice* choice = find(levels, setting.levels);
            PECIA_CHECK(choice != nullptr, "{} levels", setting.levels);
            return time.ttft_s(tokens, setting, *choice);
          }};
}

/// What the models say that are fitted without some prompts.
class HeldOut {
 public:
  explicit HeldOut(Tuned& tuned, NoDrop no_drop) : tuned_(tuned) {
    for (Fold& fold : folds_of(tuned.samples)) {
      LossModel loss = fit_loss(fold.fitted, no_drop);
      TimeModel time = fit_time(fold.fitted, tuned.levels, tuned.facts);
      parts_.push_back({std::move(fold.held_out), std::move(loss), std::move(time)});
    }
  }

  void judge_models() {
    std::vector<Predicted> losses, times;
    for (const Part& part : parts_)
      for (const Sample& sample : part.held_out) {
        losses.push_back(
            {part.loss.loss(sample.tokens, sample.setting), sample.loss, sample.loss_error});
        times.push_back({costs(part, sample.tokens).ttft_s(sample.setting), sample.ttft_s, 0});
      }
    tuned_.loss_error = error_of(losses), tuned_.time_error = error_of(times);
  }

  HeldOutGoal judge(const Goal& goal) const {
    HeldOutGoal of_goal{goal};
    double measured = 0, whole = 0;
    for (const Part& part : parts_)
      for (const DenseSample& prompt : tuned_.dense) {
        Goal own = goal;
        if (own.ttft_s) *own.ttft_s *= prompt.ttft_s;
        std::vector<Found> expected;
        for (const Sample& sample : part.held_out)
          if (sample.prompt == prompt.prompt)
            expected.push_back(costs(part, prompt.tokens).of(sample.setting));
        const auto choice = best_of(own, expected);
        if (!choice) continue;
        const Sample& sample = *std::ranges::find_if(part.held_out, [&](const Sample& candidate) {
          return candidate.prompt == prompt.prompt && candidate.setting == choice->setting;
        });
        const auto tokens = static_cast<double>(prompt.tokens);
        measured += goal.loss ? tokens * sample.loss : sample.ttft_s;
        whole += goal.loss ? tokens : prompt.ttft_s;
        ++of_goal.prompts;
      }
    if (of_goal.prompts == 0) return of_goal;
    of_goal.measured = measured / whole;
    of_goal.kept = meets(goal, {{}, of_goal.measured, of_goal.measured});
    return of_goal;
  }

 private:
  struct Part {
    std::vector<Sample> held_out;
    LossModel loss;
    TimeModel time;
  };

  Costs costs(const Part& part, int64_t tokens) const {
    return costs_of(part.loss, part.time, tuned_.levels, tokens);
  }

  Tuned& tuned_;
  std::vector<Part> parts_;
};

}  // namespace

std::string name_of(parallel::Geometry geometry) {
  return geometry == parallel::Geometry::nested ? "nested" : "disjoint";
}

NoDrop no_drop_of(parallel::Geometry geometry) {
  return geometry == parallel::Geometry::disjoint ? NoDrop::exact : NoDrop::measured;
}

Candidates Tuned::candidates() const {
  double highest = 0;
  for (const Sample& sample : samples) highest = std::max(highest, sample.setting.drop);
  Candidates candidates;
  for (const double drop : fine_drops())
    if (drop <= highest) candidates.drops.push_back(drop);
  for (const LevelChoice& choice : levels) candidates.levels.push_back(choice.count());
  candidates.micros = micros;
  for (const Sample& sample : samples)
    if (std::ranges::find(candidates.deals, sample.setting.deal) == candidates.deals.end())
      candidates.deals.push_back(sample.setting.deal);
  return candidates;
}

void Tuned::make_deals(const std::vector<double>& more) {
  if (layer_tokens.empty()) return;
  std::vector<double> drops = fine_drops();
  drops.insert(drops.end(), more.begin(), more.end());
  for (const Sample& sample : samples) drops.push_back(sample.setting.drop);
  facts.deals = std::make_shared<const Deals>(layer_tokens, drops);
  time.facts.deals = facts.deals;
}

Costs Tuned::costs(int64_t tokens) const {
  Costs costs = costs_of(loss, time, levels, tokens);
  costs.retrieval = [this](const Setting& setting) {
    return std::max(0.0, 1 - missed.bound(missed.longest, setting));
  };
  return costs;
}

void fit(Tuned& tuned) {
  PECIA_CHECK(tuned.samples.size() >= fewest_samples && tuned.dense.size() >= fewest_prompts,
              "{} samples of {} prompts", tuned.samples.size(), tuned.dense.size());
  const NoDrop no_drop = no_drop_of(tuned.geometry);
  tuned.make_deals();
  HeldOut held_out(tuned, no_drop);
  held_out.judge_models();
  tuned.held_out_goals.clear();
  for (const double loss : goal_losses) tuned.held_out_goals.push_back(held_out.judge({loss, {}}));
  for (const double share : goal_times) tuned.held_out_goals.push_back(held_out.judge({{}, share}));
  tuned.loss = fit_loss(tuned.samples, no_drop);
  tuned.missed = fit_missed(tuned.dense, tuned.samples, no_drop);
  tuned.time = fit_time(tuned.samples, tuned.levels, tuned.facts);
  tuned.chosen = choose(tuned);
}

}  // namespace pecia::tune
