// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <tuple>

#include "lib/base/core/error.hpp"
#include "lib/simulation/tune/tuned.hpp"

namespace pecia::tune {
namespace {

/// Prompts of similar length.
struct Bucket {
  std::vector<DenseSample> prompts;
  std::vector<Found> measured;  ///< by setting, means over the prompts
};

/// Keys are logarithms of the lengths to the base of two, rounded down.
std::map<int, Bucket> buckets_of(const Tuned& tuned) {
  std::map<int, Bucket> buckets;
  const auto bucket = [&](int64_t tokens) -> Bucket& {
    return buckets[std::bit_width(static_cast<uint64_t>(tokens))];
  };
  for (const DenseSample& prompt : tuned.dense) bucket(prompt.tokens).prompts.push_back(prompt);
  std::map<std::pair<Bucket*, size_t>, double> counts;
  for (const Sample& sample : tuned.samples) {
    Bucket& of = bucket(sample.tokens);
    auto found = std::ranges::find(of.measured, sample.setting, &Found::setting);
    if (found == of.measured.end())
      found = of.measured.insert(found, Found{sample.setting, 0, 0, 0});
    found->loss += sample.loss, found->ttft_s += sample.ttft_s;
    found->retrieval += sample.retrieval;
    ++counts[{&of, static_cast<size_t>(found - of.measured.begin())}];
  }
  for (const auto& [key, count] : counts) {
    Found& found = key.first->measured[key.second];
    found.loss /= count, found.ttft_s /= count;
    double dense = 0;
    for (const DenseSample& prompt : key.first->prompts) dense += prompt.retrieval;
    dense /= static_cast<double>(key.first->prompts.size());
    found.retrieval = dense > 0 ? found.retrieval / count / dense : 1;
  }
  return buckets;
}

/// Means of what the models expect of the prompts.
Costs costs_of(const Tuned& tuned, const std::vector<DenseSample>& prompts) {
  using Key = std::tuple<double, int, parallel::Micros, Deal>;
  struct Means {
    double loss = 0, ttft_s = 0, retrieval = 0;
  };
  const auto known = std::make_shared<std::map<Key, Means>>();  // goals look at the same settings
  const auto means = [&tuned, &prompts, known](const Setting& setting) -> const Means& {
    const auto [found, is_new] =
        known->try_emplace({setting.drop, setting.levels, setting.micros, setting.deal});
    if (!is_new) return found->second;
    const auto count = static_cast<double>(prompts.size());
    for (const DenseSample& prompt : prompts) {
      const Found of = tuned.costs(prompt.tokens).of(setting);
      found->second.loss += of.loss / count, found->second.ttft_s += of.ttft_s / count;
      found->second.retrieval += of.retrieval / count;
    }
    return found->second;
  };
  return {[means](const Setting& setting) { return means(setting).loss; },
          [means](const Setting& setting) { return means(setting).ttft_s; },
          [means](const Setting& setting) { return means(setting).retrieval; }};
}

std::optional<Oracle> oracle_of(const Goal& goal, const std::vector<Found>& measured,
                                const Costs& costs) {
  const auto best = best_of(goal, measured);
  if (!best) return {};
  Oracle oracle{*best, {}, false, 0};
  std::vector<Found> expected;
  for (const Found& found : measured) expected.push_back(costs.of(found.setting));
  const auto choice = best_of(goal, expected);
  if (!choice) return oracle;
  oracle.models = *std::ranges::find(measured, choice->setting, &Found::setting);
  oracle.holds = meets(goal, *oracle.models);
  oracle.gap =
      goal.loss ? oracle.models->ttft_s / best->ttft_s - 1 : oracle.models->loss - best->loss;
  return oracle;
}

}  // namespace

std::vector<Chosen> choose(const Tuned& tuned) {
  const Candidates candidates = tuned.candidates();
  std::vector<Chosen> all;
  for (const auto& [key, bucket] : buckets_of(tuned)) {
    PECIA_CHECK(!bucket.prompts.empty(), "a sample without a dense one");
    const Costs costs = costs_of(tuned, bucket.prompts);
    Chosen chosen;
    const auto [least, most] = std::ranges::minmax(bucket.prompts, {}, &DenseSample::tokens);
    chosen.shortest = least.tokens, chosen.longest = most.tokens;
    for (const DenseSample& prompt : bucket.prompts)
      chosen.dense_ttft_s += prompt.ttft_s / static_cast<double>(bucket.prompts.size());
    std::vector<Goal> goals;
    for (const double loss : goal_losses) goals.push_back({loss, {}});
    for (const double share : goal_times) goals.push_back({{}, share * chosen.dense_ttft_s});
    for (const Goal& goal : goals) {
      chosen.goal = goal;
      const auto found = search(goal, candidates, costs);
      chosen.met = found.has_value();
      chosen.found = found ? *found : nearest(goal, candidates, costs);
      chosen.oracle = oracle_of(goal, bucket.measured, costs);
      all.push_back(chosen);
    }
  }
  return all;
}

}  // namespace pecia::tune
