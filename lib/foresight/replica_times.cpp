// SPDX-License-Identifier: Apache-2.0
#include "lib/foresight/replica_times.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "lib/core/error.hpp"
#include "lib/foresight/in_parallel.hpp"
#include "lib/foresight/settled_levels.hpp"

namespace pecia::foresight {
namespace {

using schedule::PassKind;
using schedule::PassRates;
using schedule::PassWork;

/// The first and the last chunk of the longest prompt, a short one, and a pass that several prompts
/// fill.
std::vector<PassShape> prefills_of(const PassesOfReplica& passes, const PassSpan& span, int degree,
                                   bool elastic) {
  const int64_t batch = passes.batch_tokens(degree);
  const int64_t whole = std::min(batch, span.longest_prompt);
  std::vector<PassShape> all;
  const auto add = [&](int64_t sequences, int64_t tokens, int64_t cached) {
    all.push_back(passes.prompts(degree, sequences, tokens, cached));
  };
  add(1, whole, 0);
  if (span.longest_prompt > whole) add(1, whole, span.longest_prompt - whole);
  if (const int64_t part = whole / 4; part > 0) add(1, part, 0);
  const int64_t usual = span.usual_prompt > 0 ? std::min(span.usual_prompt, whole) : whole;
  if (const int64_t together = std::min(batch / usual, span.prompts); together > 1 && !elastic)
    add(together, usual, 0);
  return all;
}

/// All sequences, all of them with half the context, and one; of teams that change, with one master
/// and with as many as instances. Such a team has its share of the replica's sequences.
std::vector<PassShape> steps_of(const PassesOfReplica& passes, const PassSpan& span, int degree,
                                int instances, bool elastic) {
  const int64_t share = std::max<int64_t>(degree, span.sequences * degree / instances);
  const int64_t sequences = elastic ? std::min(span.sequences, share) : span.sequences;
  std::vector<PassShape> all;
  for (const int masters : elastic ? std::set{degree, 1} : std::set{degree}) {
    const auto add = [&](int64_t count, int64_t context) {
      all.push_back(passes.step(degree, masters, count, context));
    };
    add(sequences, span.context);
    if (span.context > 1) add(sequences, span.context / 2);
    if (sequences > 1) add(1, span.context);
  }
  return all;
}

/// The passes that are played of teams of a degree.
struct Spanning {
  std::vector<PassShape> prefills, steps;
};

std::map<int, Spanning> spanning_passes(const PassesOfReplica& passes,
                                        const resources::Resources& resources,
                                        const PassSpan& span) {
  std::map<int, Spanning> all;
  for (const int degree : passes.degrees())
    all[degree] = {prefills_of(passes, span, degree, resources.elastic),
                   steps_of(passes, span, degree, resources.cp, resources.elastic)};
  return all;
}

PassRates fitted(const std::vector<PassFigures>& figures) {
  const PassFigures& first = figures.front();
  schedule::RateFit fit({0.1 * first.seconds, 0.5 * first.seconds / first.work.rows,
                         0.4 * first.seconds / first.work.pairs});
  constexpr int rounds = 8;  // until the estimate counts little beside the passes
  for (int round = 0; round < rounds; ++round)
    for (const PassFigures& each : figures) fit.add(each.work, each.seconds);
  constexpr double least = 1e-20;  // a rate of nothing is no rate that a fit can begin with
  const PassRates& rates = fit.rates();
  return {std::max(rates.pass_s, least), std::max(rates.row_s, least),
          std::max(rates.pair_s, least)};
}

/// What teams that change send, over the links between all instances.
schedule::TeamCosts costs_of(const PassSetting& setting, const resources::Resources& resources) {
  const model::ModelConfig& config = setting.config;
  const auto ranks = static_cast<int>(resources.degrees().ranks());
  if (ranks == 1) return {.bytes_per_second = 1};  // nothing is sent
  const machines::Cluster& cluster = setting.cluster;
  const comm::LinkLevel level = comm::link_level(cluster.place(0), cluster.place(ranks - 1));
  // A query in fp32, and its partial output with the log-sum of each head.
  const double query_bytes = 4.0 * static_cast<double>(config.layers * config.num_heads) *
                             static_cast<double>(2 * config.head_dim + 1) /
                             (resources.sp * resources.tp);
  return {.message_s = 1e-6 * cluster.links[static_cast<size_t>(level)].us,
          .bytes_per_second = all_to_all_bandwidth(cluster, ranks),
          .kv_bytes_per_token = static_cast<double>(resources::kv_bytes_of_rank(config, resources)),
          .query_bytes_per_row = query_bytes,
          .layers = static_cast<int>(config.layers),
          .hides_keys = cluster.rank.gpu};
}

PassRates between(const PassRates& from, const PassRates& to, double way) {
  return {std::lerp(from.pass_s, to.pass_s, way), std::lerp(from.row_s, to.row_s, way),
          std::lerp(from.pair_s, to.pair_s, way)};
}

}  // namespace

double cost_of_times(Passes& passes, const resources::Resources& resources, const PassSpan& span) {
  const PassesOfReplica of_replica(passes, resources, HowFar::played);
  double sum = 0;
  for (const auto& [degree, of_degree] : spanning_passes(of_replica, resources, span)) {
    for (const PassShape& shape : of_degree.prefills) sum += passes.cost(shape);
    for (const PassShape& shape : of_degree.steps) sum += passes.cost(shape);
  }
  return sum;
}

ReplicaTimes::ReplicaTimes(Passes& passes, const resources::Resources& resources,
                           const PassSpan& span, HowFar how_far) {
  const PassesOfReplica of_replica(passes, resources, how_far);
  std::vector<PassShape> shapes;
  std::map<int, std::pair<size_t, size_t>> counts;  // of prefills and of steps, by degree
  for (const auto& [degree, of_degree] : spanning_passes(of_replica, resources, span)) {
    shapes.insert(shapes.end(), of_degree.prefills.begin(), of_degree.prefills.end());
    shapes.insert(shapes.end(), of_degree.steps.begin(), of_degree.steps.end());
    counts[degree] = {of_degree.prefills.size(), of_degree.steps.size()};
  }
  std::vector<PassFigures> figures(shapes.size());
  in_parallel(how_far == HowFar::at_least ? 1 : passes.setting().threads, shapes.size(),
              [&](size_t i) { figures[i] = of_replica.figures(shapes[i]); });
  for (auto next = figures.begin(); const auto& [degree, count] : counts) {
    const auto steps = next + static_cast<std::ptrdiff_t>(count.first);
    const auto end = steps + static_cast<std::ptrdiff_t>(count.second);
    played_[degree] = {{next, steps}, {steps, end}};
    next = end;
  }

  const Played& first = played_.begin()->second;
  teams_.emplace(schedule::PassTimes{schedule::RateFit(fitted(first.prefill)),
                                     schedule::RateFit(fitted(first.decode))},
                 costs_of(passes.setting(), resources), resources.cp);
  for (const PassKind kind : {PassKind::prefill, PassKind::decode}) {
    int last = 0;
    PassRates from;
    for (const auto& [degree, played] : played_) {
      const PassRates to = fitted(played.of(kind));
      for (int each = last == 0 ? degree : last + 1; each <= degree; ++each)
        teams_->begin_with(
            each, kind,
            each == degree ? to
                           : between(from, to, static_cast<double>(each - last) / (degree - last)));
      last = degree, from = to;
      for (const PassFigures& pass : played.of(kind))
        error_ =
            std::max(error_, std::abs(teams_->seconds(degree, kind, pass.work) / pass.seconds - 1));
    }
  }
}

PassFigures ReplicaTimes::of(PassKind kind, int degree, const PassWork& work) const {
  PassFigures sum;
  sum.work = work;
  if (work.passes == 0) return sum;
  const auto above = played_.upper_bound(degree);
  const Played& played = (above == played_.begin() ? above : std::prev(above))->second;
  std::vector<PassWork> works;
  for (const PassFigures& each : played.of(kind)) works.push_back(each.work);
  const std::vector<double> times = mix_of(works, work);
  PassFigures mixed;
  for (size_t i = 0; i < times.size(); ++i) mixed.add(played.of(kind)[i], times[i]);
  PECIA_CHECK(mixed.seconds > 0, "no pass is like {} passes of {} rows", work.passes, work.rows);
  sum.add(mixed, teams_->seconds(degree, kind, work) / mixed.seconds);
  return sum;
}

std::vector<double> mix_of(const std::vector<PassWork>& passes, const PassWork& work) {
  // Coordinate descent on the squared relative errors of passes, rows and pairs.
  const auto terms = [&](const PassWork& of) {
    return std::array{of.passes / work.passes, of.rows / work.rows, of.pairs / work.pairs};
  };
  std::array<double, 3> missing{1, 1, 1};
  std::vector<double> times(passes.size(), 0);
  constexpr int rounds = 400;
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < passes.size(); ++i) {
      const auto own = terms(passes[i]);
      double along = 0, norm = 0;
      for (size_t k = 0; k < own.size(); ++k) along += own[k] * missing[k], norm += own[k] * own[k];
      const double step = std::max(-times[i], along / norm);
      times[i] += step;
      for (size_t k = 0; k < own.size(); ++k) missing[k] -= step * own[k];
    }
  return times;
}

}  // namespace pecia::foresight
