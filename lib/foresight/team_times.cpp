// SPDX-License-Identifier: Apache-2.0
#include "lib/foresight/team_times.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "lib/core/error.hpp"
#include "lib/foresight/passes_of_teams.hpp"
#include "lib/foresight/replay.hpp"
#include "lib/foresight/settled_levels.hpp"
#include "lib/schedule/plan.hpp"

namespace pecia::foresight {
namespace {

using parallel::Ring;
using schedule::PassKind;

constexpr int64_t times_larger = 4;  // from one size that is played to the next

/// `most`, a quarter of it, and so on, not below `least`, in ascending order.
std::vector<int64_t> quarters(int64_t least, int64_t most) {
  std::vector<int64_t> sizes;
  for (int64_t size = most; size > least; size /= times_larger) sizes.push_back(size);
  sizes.push_back(std::min(least, most));
  std::ranges::reverse(sizes);
  return sizes;
}

/// 1, `step`, four times that, and so on, and `most`.
std::vector<int64_t> up_to(int64_t most, int64_t step) {
  std::vector<int64_t> sizes{1};
  for (int64_t size = std::max<int64_t>(2, step); size < most; size *= times_larger)
    sizes.push_back(size);
  if (most > 1) sizes.push_back(most);
  return sizes;
}

/// Where a value lies between two neighbours of some sizes. Beyond the ends `way` is outside [0, 1].
struct Between {
  int64_t low, high;
  double way;

  double of(double at_low, double at_high) const { return at_low + way * (at_high - at_low); }
};

Between between_sizes(const std::vector<int64_t>& sizes, double value) {
  if (sizes.size() == 1) return {sizes[0], sizes[0], 0};
  const auto inner_end = std::prev(sizes.end());
  const auto high = std::upper_bound(std::next(sizes.begin()), inner_end, value);
  const auto low = static_cast<double>(*std::prev(high));
  return {*std::prev(high), *high, (value - low) / (static_cast<double>(*high) - low)};
}

/// Keys that each of `rows` new tokens sees on average, with `before` tokens before the first.
double mean_keys(PassKind kind, double rows, double before) {
  return kind == PassKind::prefill ? before + 0.5 * (rows + 1) : before + 1;
}

/// Rates that were fitted, where those of zero become very small, so that later passes can raise them.
schedule::PassRates positive(const schedule::PassRates& rates,
                             const schedule::PassRates& estimate) {
  constexpr double least = 1e-6;
  return {std::max(rates.pass_s, least * estimate.pass_s),
          std::max(rates.row_s, least * estimate.row_s),
          std::max(rates.pair_s, least * estimate.pair_s)};
}

}  // namespace

ForeseenPasses::ForeseenPasses(const Replica& replica, const machines::Cluster& cluster,
                               int64_t longest)
    : replica_(replica), cluster_(cluster) {
  const resources::Resources& resources = replica.resources;
  PECIA_CHECK(longest >= 1 && resources.max_batch_tokens >= 1 && resources.max_sequences >= 1,
              "passes of {} tokens and {} sequences of up to {} tokens", resources.max_batch_tokens,
              resources.max_sequences, longest);
  const int64_t few = passes_of(replica, Ring::pass_kv).short_tokens();
  const int64_t most = std::min(resources.max_batch_tokens, longest * resources.max_sequences);
  tokens_ = quarters(few, most);
  sequences_ = up_to(resources.max_sequences, resources.cp);
  for (const int64_t share : {16, 4, 1})
    if (longest / share > few) cached_.push_back(longest / share);
  contexts_ = cached_;
  cached_.insert(cached_.begin(), 0);
  contexts_.insert(contexts_.begin(), few);
}

schedule::Plan ForeseenPasses::plan_of(const Size& size, Ring ring) const {
  const execute::TrialPasses passes = passes_of(replica_, ring);
  return size.kind == PassKind::prefill ? passes.feed(0, 1, size.rows, size.before)
                                        : passes.step(0, size.rows, size.before, true);
}

double ForeseenPasses::played_s(const Size& size) {
  if (const auto found = played_.find(size); found != played_.end()) return found->second;
  const std::vector<Ring> rings = size.kind == PassKind::prefill ? rings_of(replica_.resources)
                                                                 : std::vector<Ring>{Ring::pass_kv};
  double least = std::numeric_limits<double>::infinity();
  for (const Ring ring : rings)
    least = std::min(
        least, replay(programs_of(replica_, cluster_, plan_of(size, ring)), cluster_).seconds);
  return played_[size] = least;
}

double ForeseenPasses::between(PassKind kind, double rows, double mean_context) {
  const bool prefills = kind == PassKind::prefill;
  const Between row = between_sizes(prefills ? tokens_ : sequences_, rows);
  const auto at = [&](int64_t size) {
    const double before =
        mean_context - mean_keys(kind, static_cast<double>(size), 0);  // of the played pass
    const Between cached = between_sizes(prefills ? cached_ : contexts_, before);
    return cached.of(played_s({kind, size, cached.low}), played_s({kind, size, cached.high}));
  };
  return std::max(0.0, row.of(at(row.low), at(row.high)));
}

double ForeseenPasses::prefill_s(double tokens, double cached) {
  PECIA_CHECK(tokens >= 1 && cached >= 0, "{} tokens after {}", tokens, cached);
  return between(PassKind::prefill, tokens, mean_keys(PassKind::prefill, tokens, cached));
}

double ForeseenPasses::decode_s(double sequences, double context) {
  PECIA_CHECK(sequences >= 1 && context >= 0, "{} sequences of {} tokens", sequences, context);
  return between(PassKind::decode, sequences, mean_keys(PassKind::decode, sequences, context));
}

double ForeseenPasses::seconds(const schedule::Plan& plan) {
  const auto [prompts, answers] = schedule::work_of(plan);
  double seconds = 0;
  if (prompts.rows > 0)
    seconds += between(PassKind::prefill, prompts.rows, prompts.pairs / prompts.rows);
  if (answers.rows > 0)
    seconds += between(PassKind::decode, answers.rows, answers.pairs / answers.rows);
  return seconds;
}

schedule::PassRates ForeseenPasses::fitted(PassKind kind, const schedule::PassRates& estimate) {
  const bool prefills = kind == PassKind::prefill;
  schedule::RateFit fit(estimate);
  for (const int64_t before : prefills ? cached_ : contexts_)
    for (const int64_t rows : prefills ? tokens_ : sequences_) {
      const Size size{kind, rows, before};
      const auto [prompts, answers] = schedule::busiest_work(plan_of(size, Ring::pass_kv));
      fit.add(prefills ? prompts : answers, played_s(size));
    }
  return positive(fit.rates(), estimate);
}

namespace {

schedule::PassTimes estimated(const Replica& replica, const machines::Cluster& cluster) {
  double peak_flops = 0;
  for (const auto& [type, flops] : cluster.rank.flops) peak_flops = std::max(peak_flops, flops);
  return resources::estimated_times(replica.config, replica.resources, replica.weights,
                                    peak_flops * replica.ranks());
}

/// What teams send, over the links between all instances.
schedule::TeamCosts costs_of(const Replica& replica, const machines::Cluster& cluster) {
  const model::ModelConfig& config = replica.config;
  const resources::Resources& resources = replica.resources;
  const comm::LinkLevel level =
      comm::link_level(cluster.place(0), cluster.place(replica.ranks() - 1));
  // A query in fp32, and its partial output with the log-sum of each head.
  const double query_bytes = 4.0 * static_cast<double>(config.layers * config.num_heads) *
                             static_cast<double>(2 * config.head_dim + 1) /
                             (resources.sp * resources.tp);
  return {.message_s = 1e-6 * cluster.links[static_cast<size_t>(level)].us,
          .bytes_per_second = all_to_all_bandwidth(cluster, replica.ranks()),
          .kv_bytes_per_token = static_cast<double>(resources::kv_bytes_of_rank(config, resources)),
          .query_bytes_per_row = query_bytes,
          .layers = static_cast<int>(config.layers),
          .hides_keys = cluster.rank.gpu};
}

/// Rates that come close to passes of a team. A fit follows the last ones most: the largest.
schedule::PassRates rates_of_team(const Replica& replica, const machines::Cluster& cluster,
                                  int64_t longest, int degree, PassKind kind,
                                  const schedule::PassRates& estimate) {
  resources::Resources resources = replica.resources;
  resources.cp = degree;
  const Replica team{replica.job, replica.config, resources, replica.weights, replica.operand_type};
  schedule::RateFit fit(estimate);
  const auto play = [&](const schedule::Plan& plan) {
    const auto [prompts, answers] = schedule::busiest_work(plan);
    fit.add(kind == PassKind::prefill ? prompts : answers,
            replay(programs_of(team, cluster, plan), cluster).seconds);
  };
  const execute::TrialPasses passes = passes_of(team, Ring::pass_kv);
  for (const int64_t before : {int64_t{0}, longest / 4, longest})
    if (kind == PassKind::prefill)
      for (const int64_t rows : {resources.max_batch_tokens / 16, resources.max_batch_tokens})
        play(read_by_team(passes, std::max<int64_t>(rows, 1) * degree, before));
    else
      for (const int masters : std::set{1, degree})
        for (const int64_t sequences : std::set<int64_t>{1, resources.max_sequences})
          play(step_of_team(passes, masters, sequences, std::max<int64_t>(before, degree)));
  return positive(fit.rates(), estimate);
}

/// 1, 2, 4, … and `most`.
std::vector<int> played_degrees(int most) {
  std::vector<int> degrees;
  for (int degree = 1; degree < most; degree *= 2) degrees.push_back(degree);
  degrees.push_back(most);
  return degrees;
}

schedule::TeamTimes times_of_teams(const Replica& replica, const machines::Cluster& cluster,
                                   int64_t longest) {
  const int most = replica.resources.cp;
  resources::Resources one = replica.resources;
  one.cp = 1;
  const schedule::PassTimes estimate =
      estimated({replica.job, replica.config, one, replica.weights, replica.operand_type}, cluster);
  const schedule::TeamCosts costs = costs_of(replica, cluster);
  const schedule::TeamTimes expected(estimate, costs, most);
  const auto rates = [&](int degree, PassKind kind) {
    return rates_of_team(replica, cluster, longest, degree, kind, expected.rates(degree, kind));
  };
  schedule::TeamTimes times({schedule::RateFit(rates(1, PassKind::prefill)),
                             schedule::RateFit(rates(1, PassKind::decode))},
                            costs, most);
  for (const PassKind kind : {PassKind::prefill, PassKind::decode}) {
    int last = 1;
    for (const int degree : played_degrees(most)) {
      if (degree == 1) continue;
      const schedule::PassRates from = times.rates(last, kind), to = rates(degree, kind);
      for (int between = last + 1; between <= degree; ++between) {
        const double way = static_cast<double>(between - last) / (degree - last);
        times.begin_with(
            between, kind,
            {std::lerp(from.pass_s, to.pass_s, way), std::lerp(from.row_s, to.row_s, way),
             std::lerp(from.pair_s, to.pair_s, way)});
      }
      last = degree;
    }
  }
  return times;
}

}  // namespace

schedule::TeamTimes team_times(const Replica& replica, const machines::Cluster& cluster,
                               int64_t longest) {
  const resources::Resources& resources = replica.resources;
  if (resources.elastic) return times_of_teams(replica, cluster, longest);
  schedule::TeamTimes times(estimated(replica, cluster), costs_of(replica, cluster), resources.cp);
  ForeseenPasses passes(replica, cluster, longest);
  for (const PassKind kind : {PassKind::prefill, PassKind::decode})
    times.begin_with(resources.cp, kind, passes.fitted(kind, times.rates(resources.cp, kind)));
  return times;
}

}  // namespace pecia::foresight
