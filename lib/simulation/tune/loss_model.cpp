// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/tune/loss_model.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "lib/base/core/error.hpp"
#include "lib/simulation/tune/folds.hpp"
#include "lib/simulation/tune/retrieval.hpp"

namespace pecia::tune {
namespace {

using Knot = LossModel::Knot;

/// Replaces runs of losses that fall by their means, and then losses below 0 by 0.
void make_monotone(std::vector<Knot>& knots) {
  struct Run {
    double sum;
    size_t count;
    double mean() const { return sum / static_cast<double>(count); }
  };
  std::vector<Run> runs;
  for (const Knot& knot : knots) {
    runs.push_back({knot.loss, 1});
    while (runs.size() > 1 && runs[runs.size() - 2].mean() > runs.back().mean()) {
      const Run last = runs.back();
      runs.pop_back();
      runs.back().sum += last.sum, runs.back().count += last.count;
    }
  }
  size_t at = 0;
  for (const Run& run : runs)
    for (size_t i = 0; i < run.count; ++i) knots[at++].loss = std::max(0.0, run.mean());
}

/// The mean over samples of one drop, whose losses are scaled to the middle length.
Knot knot_of(double drop, const std::vector<const Sample*>& samples, const LossModel& model) {
  double weight = 0, sum = 0, noise = 0, spread = 0;
  const auto scale = [&](const Sample& sample) {
    return std::pow(static_cast<double>(sample.tokens) / model.middle, model.power);
  };
  for (const Sample* sample : samples) {
    const auto tokens = static_cast<double>(sample->tokens);
    weight += tokens, sum += tokens * scale(*sample) * sample->loss;
    noise += std::pow(tokens * scale(*sample) * sample->loss_error, 2);
  }
  const double mean = sum / weight;
  for (const Sample* sample : samples)
    spread +=
        std::pow(static_cast<double>(sample->tokens) * (scale(*sample) * sample->loss - mean), 2);
  const auto count = static_cast<double>(samples.size());
  if (samples.size() > 1) spread *= count / (count - 1);
  return {drop, mean, std::sqrt(std::max(noise, spread)) / weight};
}

LossModel fit_with(double power, const std::vector<Sample>& samples, NoDrop no_drop) {
  PECIA_CHECK(!samples.empty(), "no samples");
  LossModel model;
  const auto [least, most] = std::ranges::minmax(samples, {}, &Sample::tokens);
  model.shortest = least.tokens, model.longest = most.tokens, model.power = power;
  model.middle = std::sqrt(static_cast<double>(least.tokens) * static_cast<double>(most.tokens));
  std::map<std::pair<int, Deal>, std::map<double, std::vector<const Sample*>>> by_setting;
  for (const Sample& sample : samples)
    by_setting[{sample.setting.levels, sample.setting.deal}][sample.setting.drop].push_back(
        &sample);
  for (auto& [of, by_drop] : by_setting) {
    const auto& [levels, deal] = of;
    if (deal != Deal::even)  // what is lost where nothing is dropped is measured once
      if (const auto even = by_setting.find({levels, Deal::even}); even != by_setting.end())
        if (const auto none = even->second.find(0); none != even->second.end())
          by_drop.insert(*none);
    LossModel::Curve& curve = model.curves.emplace_back(LossModel::Curve{levels, {}, deal});
    if (no_drop == NoDrop::exact) curve.knots.push_back({});
    for (const auto& [drop, of_drop] : by_drop)
      if (drop > 0 || no_drop == NoDrop::measured)
        curve.knots.push_back(knot_of(drop, of_drop, model));
    make_monotone(curve.knots);
  }
  return model;
}

/// What the model expects of `value`, a member of knots or a sum of such, at the setting's drop.
template <typename Value>
double expected(const LossModel& model, int64_t tokens, const Setting& setting,
                const Value& value) {
  const LossModel::Curve* const curve =
      model.find(setting.levels, setting.drop == 0 ? Deal::even : setting.deal);
  PECIA_CHECK(curve != nullptr, "{} levels and a deal by {}, which were not measured",
              setting.levels, name_of(setting.deal));
  const std::vector<Knot>& knots = curve->knots;
  const auto after = std::ranges::upper_bound(knots, setting.drop, {}, &Knot::drop) - knots.begin();
  const auto at = [&](std::ptrdiff_t i) {
    double most = 0;
    for (std::ptrdiff_t before = 0; before <= i; ++before)
      most = std::max(most, value(knots[before]));
    return most;
  };
  const auto length = static_cast<double>(std::clamp(tokens, model.shortest, model.longest));
  const double scale = std::pow(length / model.middle, -model.power);
  if (after == 0) return scale * at(0);
  if (after == std::ssize(knots)) return scale * at(after - 1);
  const Knot &a = knots[after - 1], &b = knots[after];
  if (setting.levels > 2 && a.drop == 0 && setting.drop > 0) return scale * at(after);
  const double t = (setting.drop - a.drop) / (b.drop - a.drop);
  return scale * (at(after - 1) + t * (at(after) - at(after - 1)));
}

}  // namespace

const LossModel::Curve* LossModel::find(int levels, Deal deal) const {
  for (const Curve& curve : curves)
    if (curve.levels == levels && curve.deal == deal) return &curve;
  return nullptr;
}

double LossModel::loss(int64_t tokens, const Setting& setting) const {
  return expected(*this, tokens, setting, [](const Knot& knot) { return knot.loss; });
}

double LossModel::bound(int64_t tokens, const Setting& setting) const {
  return expected(*this, tokens, setting, [](const Knot& knot) { return knot.loss + knot.error; });
}

LossModel fit_loss(const std::vector<Sample>& samples, NoDrop no_drop) {
  PECIA_CHECK(!samples.empty(), "no samples");
  const auto [least, most] = std::ranges::minmax(samples, {}, &Sample::tokens);
  double best_power = 0, least_error = HUGE_VAL;
  if (most.tokens >= 2 * least.tokens) {
    const std::vector<Fold> folds = folds_of(samples);
    for (const double power : {0.0, 0.5, -0.5, 1.0, -1.0}) {
      double error = 0;
      for (const Fold& fold : folds) {
        const LossModel model = fit_with(power, fold.fitted, no_drop);
        for (const Sample& sample : fold.held_out)
          error += static_cast<double>(sample.tokens) *
                   std::abs(model.loss(sample.tokens, sample.setting) - sample.loss);
      }
      if (error < least_error) best_power = power, least_error = error;
    }
  }
  return fit_with(best_power, samples, no_drop);
}

LossModel fit_missed(const std::vector<DenseSample>& dense, const std::vector<Sample>& samples,
                     NoDrop no_drop) {
  double retrieved = 0;
  for (const DenseSample& prompt : dense) retrieved += prompt.retrieval;
  std::vector<Sample> missed = samples;
  for (Sample& sample : missed) {
    const auto prompt = std::ranges::find(dense, sample.prompt, &DenseSample::prompt);
    PECIA_CHECK(prompt != dense.end(), "prompt {} has no dense sample", sample.prompt);
    const double fewer = prompt->retrieval - sample.retrieval;
    sample.loss = retrieved > 0 ? fewer * static_cast<double>(dense.size()) / retrieved : 0;
    sample.loss_error = 0;  // that of a mean follows from how prompts differ
    sample.tokens = judged_tokens;
  }
  return fit_with(0, missed, no_drop);
}

}  // namespace pecia::tune
