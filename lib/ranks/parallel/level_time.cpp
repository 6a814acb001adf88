// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/level_time.hpp"

#include <algorithm>
#include <cmath>

#include "lib/base/core/error.hpp"

namespace pecia::parallel {

double pipeline_s(double own_s, const std::vector<StepTimes>& steps) {
  double sent = 0;
  for (const StepTimes& step : steps) sent += step.tokens_s;
  double arrived = 0, attended = own_s, home = sent;
  for (const StepTimes& step : steps) {
    arrived += step.tokens_s;
    attended = std::max(attended, arrived) + step.attention_s;
    home = std::max(home, attended) + step.outputs_s;
  }
  return std::max(home, attended);
}

std::vector<LevelLoad> level_loads(const Levels& levels, Geometry geometry) {
  const LevelRule rule{geometry, 0};
  const int ranks = levels.ranks();
  std::vector<LevelLoad> loads(levels.count() - 1);
  for (int rank = 0; rank < ranks; ++rank) {
    double below = 1, have_queries = 1,
           have_keys = 1;  // ranks of the segment that is there already
    for (int level = 2; level <= levels.count(); ++level) {
      double size = 0, new_pairs = 0, cached_pairs = 0;
      bool asks = false, is_asked = false;
      for (int query = 0; query < ranks; ++query) {
        if (!levels.together(level, query, rank)) continue;
        ++size;
        for (int key = 0; key < ranks; ++key) {
          const Seen seen = seen_at(levels, rule, level, query, key);
          new_pairs += seen.rows ? 1 : 0, cached_pairs += seen.cached ? 1 : 0;
          asks = asks || (seen.rows && query == rank);
          is_asked = is_asked || (seen.rows && key == rank);
        }
      }
      LevelLoad& load = loads[level - 2];
      load.repeats_own = geometry == Geometry::nested;
      load.new_pairs = std::max(load.new_pairs, new_pairs / size);
      load.cached_pairs = std::max(load.cached_pairs, cached_pairs / size);
      load.sent_of_all = std::max(load.sent_of_all, (size - below) / size);
      load.sent_home = std::max(load.sent_home, (size - 1) / size);
      const LevelLoad::Sent sent{asks ? (size - have_queries) / size : 0,
                                 is_asked ? (size - have_keys) / size : 0};
      if (std::ranges::find(load.sent, sent) == load.sent.end()) load.sent.push_back(sent);
      below = size;
      if (asks) have_queries = size;
      if (is_asked) have_keys = size;
    }
  }
  return loads;
}

namespace {

double mean_kept_keys(const LevelRule& rule, int level) {
  if (rule.key_drops.empty()) return rule.kept(level);
  double sum = 0;
  for (int64_t head = 0; head < std::ssize(rule.key_drops); ++head)
    sum += rule.kept_keys(level, head);
  return sum / static_cast<double>(rule.key_drops.size());
}

}  // namespace

double layer_s(const std::vector<LevelLoad>& loads, const LevelRule& rule, const RankTokens& tokens,
               const RingShape& shape, const LevelRates& rates, const Micros& micros) {
  PECIA_CHECK(
      !micros.empty() && std::ranges::min(micros) >= 1 && rates.s_per_byte.size() >= loads.size(),
      "{} micro-partitions, {} levels, {} links", to_string(micros), loads.size() + 1,
      rates.s_per_byte.size());
  constexpr double price_of_doubling = 0.01;
  const double rows = tokens.rows, cached = tokens.cached;
  const double head_pair_s = rates.s_per_pair * shape.num_heads;
  const double own_s = head_pair_s * rows * (rows / 2 + cached);
  const double queries = rows * shape.num_heads * shape.q_bytes;
  const double new_keys = rows * 2 * shape.num_kv_heads * shape.kv_bytes;
  const double cached_keys = cached * 2 * shape.num_kv_heads * shape.kv_bytes;
  std::vector<StepTimes> steps;
  double repeated_s = 0;
  for (size_t i = 0; i < loads.size(); ++i) {
    const LevelLoad& load = loads[i];
    const int level = static_cast<int>(i) + 2, micro = micro_at(micros, level);
    const double slower = 1 + price_of_doubling * std::log2(micro);
    const double kept = rule.kept(level), kept_keys = mean_kept_keys(rule, level);
    const double link = rates.s_per_byte[i] / micro;
    const double pairs = load.new_pairs * rows * rows + load.cached_pairs * rows * cached;
    double sent =
        cached > 0 ? load.sent_of_all * (kept * queries + kept_keys * (new_keys + cached_keys)) : 0;
    for (const LevelLoad::Sent& of_rank : load.sent)
      sent = std::max(sent,
                      of_rank.queries * kept * queries + of_rank.new_keys * kept_keys * new_keys);
    const StepTimes step{sent * link, kept * kept_keys * pairs * head_pair_s * slower / micro,
                         kept * load.sent_home * rows * shape.num_heads * shape.out_bytes * link};
    steps.insert(steps.end(), micro, step);
    if (load.repeats_own) repeated_s += kept * kept * own_s;
  }
  return pipeline_s(own_s, steps) + repeated_s;
}

Micros best_micros(std::span<const int> choices, int levels,
                   const std::function<double(const Micros&)>& seconds) {
  PECIA_CHECK(!choices.empty() && levels >= 1, "{} choices for {} levels", choices.size(), levels);
  Micros best;
  double least_s = 0;
  const auto look = [&](Micros micros) {
    const double s = seconds(micros);
    if (!best.empty() && s >= least_s) return false;
    best = std::move(micros), least_s = s;
    return true;
  };
  for (const int choice : choices) look(Micros(static_cast<size_t>(levels), choice));
  for (bool faster = levels > 1; faster;) {
    faster = false;
    for (size_t level = 0; level < best.size(); ++level)
      for (const int choice : choices) {
        Micros other = best;
        other[level] = choice;
        if (other != best) faster = look(std::move(other)) || faster;
      }
  }
  if (std::ranges::all_of(best, [&](int micro) { return micro == best.front(); })) best.resize(1);
  return best;
}

}  // namespace pecia::parallel
