// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/replica_cost_model.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "lib/base/core/error.hpp"
#include "lib/base/core/in_parallel.hpp"
#include "lib/engine/schedule/job_limits.hpp"
#include "lib/ranks/parallel/virtual_ranks.hpp"

namespace pecia::simulation {
namespace {

using parallel::AttentionExchange;
using schedule::PassKind;
using schedule::PassRates;
using schedule::PassWork;

parallel::PassModes modes_of(const resources::Resources& resources) {
  return parallel::pass_modes({resources.degrees(), resources.prefill, resources.decode},
                              resources.shift_threshold.value_or(resources.max_sequences),
                              resources.gather_threshold);
}

/// The first and the last chunk of the longest prompt, a short one, and a pass that several prompts
/// fill.
std::vector<PassShape> prefills_of(const ReplicaPasses& passes, const PassLengths& lengths,
                                   int degree, bool elastic) {
  const int64_t batch = passes.batch_tokens(degree);
  const int64_t whole = std::min(batch, lengths.longest_prompt);
  std::vector<PassShape> all;
  const auto add = [&](int64_t sequences, int64_t tokens, int64_t cached) {
    all.push_back(passes.prefill(degree, sequences, tokens, cached));
  };
  add(1, whole, 0);
  if (lengths.longest_prompt > whole) add(1, whole, lengths.longest_prompt - whole);
  if (const int64_t part = whole / 4; part > 0) add(1, part, 0);
  const int64_t usual = lengths.usual_prompt > 0 ? std::min(lengths.usual_prompt, whole) : whole;
  if (const int64_t together = std::min(batch / usual, lengths.prompts); together > 1 && !elastic)
    add(together, usual, 0);
  return all;
}

/// All sequences, all of them with half the context, and one; of teams that change, with one master
/// and with as many as instances. Such a team has its share of the replica's sequences.
std::vector<PassShape> steps_of(const ReplicaPasses& passes, const PassLengths& lengths, int degree,
                                int instances, bool elastic) {
  const int64_t share = std::max<int64_t>(degree, lengths.sequences * degree / instances);
  const int64_t sequences = elastic ? std::min(lengths.sequences, share) : lengths.sequences;
  std::vector<PassShape> all;
  for (const int masters : elastic ? std::set{degree, 1} : std::set{degree}) {
    const auto add = [&](int64_t count, int64_t context) {
      all.push_back(passes.step(degree, masters, count, context));
    };
    add(sequences, lengths.context);
    if (lengths.context > 1) add(sequences, lengths.context / 2);
    if (sequences > 1) add(1, lengths.context);
  }
  return all;
}

/// The passes that are replayed of teams of a degree.
struct Spanning {
  std::vector<PassShape> prefills, steps;
};

std::map<int, Spanning> spanning_passes(const ReplicaPasses& passes,
                                        const resources::Resources& resources,
                                        const PassLengths& lengths) {
  std::map<int, Spanning> all;
  for (const int degree : passes.degrees())
    all[degree] = {prefills_of(passes, lengths, degree, resources.elastic),
                   steps_of(passes, lengths, degree, resources.cp, resources.elastic)};
  return all;
}

PassRates fitted(const std::vector<PassCost>& costs) {
  const PassCost& first = costs.front();
  schedule::RateFit fit({0.1 * first.seconds, 0.5 * first.seconds / first.work.rows,
                         0.4 * first.seconds / first.work.pairs});
  constexpr int rounds = 8;  // until the estimate counts little beside the passes
  for (int round = 0; round < rounds; ++round)
    for (const PassCost& each : costs) fit.add(each.work, each.seconds);
  constexpr double least = 1e-20;  // a rate of nothing is no rate that a fit can begin with
  const PassRates& rates = fit.rates();
  return {std::max(rates.pass_s, least), std::max(rates.row_s, least),
          std::max(rates.pair_s, least)};
}

/// What teams that change send, over the links between all instances.
schedule::TeamCosts costs_of(const Scenario& scenario, const resources::Resources& resources) {
  const model::ModelConfig& config = scenario.config;
  const auto ranks = resources.replica_ranks();
  if (ranks == 1) return {.bytes_per_second = 1};  // nothing is sent
  const cluster_files::Cluster& cluster = scenario.cluster;
  const comm::LinkLevel level = comm::link_level(cluster.place(0), cluster.place(ranks - 1));
  return {.message_s = 1e-6 * cluster.links[static_cast<size_t>(level)].us,
          .bytes_per_second = all_to_all_bandwidth(cluster, ranks),
          .kv_bytes_per_token = static_cast<double>(resources::kv_bytes_of_rank(config, resources)),
          .query_bytes_per_row = schedule::query_bytes_per_row(config, resources),
          .layers = static_cast<int>(config.layers),
          .hides_keys = cluster.rank.gpu,
          .state_bytes = static_cast<double>(config.state_bytes(resources.sp * resources.tp))};
}

PassRates between(const PassRates& from, const PassRates& to, double way) {
  return {std::lerp(from.pass_s, to.pass_s, way), std::lerp(from.row_s, to.row_s, way),
          std::lerp(from.pair_s, to.pair_s, way)};
}

}  // namespace

ReplicaPasses::ReplicaPasses(PassCosts& costs, const resources::Resources& resources,
                             Fidelity fidelity)
    : costs_(costs), resources_(resources), fidelity_(fidelity) {
  base_.degrees = resources.degrees();
  base_.stages = resources.pp;
  base_.levels = settled_levels(costs.scenario(), resources_);
  if (resources.levels_from()) base_.tokens_per_pass = resources.max_batch_tokens;
  const auto& known = costs.scenario().cluster.ring_rule;
  resources::Resources rings = resources;
  rings.kv_dtype = costs.scenario().kv;
  if (known && known->is_of(ring_of(costs.scenario().config, rings))) fitted_rule_ = known->rule;
}

std::vector<int> ReplicaPasses::degrees() const {
  std::vector<int> degrees;
  const bool bounds = fidelity_ == Fidelity::lower_bound || fidelity_ == Fidelity::steps_replayed;
  if (resources_.elastic && bounds) return {1};
  if (resources_.elastic)
    for (int degree = 1; degree < resources_.cp; degree *= 2) degrees.push_back(degree);
  degrees.push_back(resources_.cp);
  return degrees;
}

PassShape ReplicaPasses::prefill(int degree, int64_t sequences, int64_t tokens,
                                 int64_t cached) const {
  PassShape shape = base_;
  shape.kind = PassKind::prefill;
  shape.degrees.cp = degree;
  shape.sharding = modes_of(resources_).sharding(sequences * tokens, true);
  shape.sequences = sequences, shape.tokens = tokens, shape.cached = cached;
  shape.ring = resources_.ring.value_or(AttentionExchange::pass_kv);
  if (resources_.elastic) {
    shape.masters = 1;
    return shape;
  }
  const bool by_levels = resources_.levels_from() && tokens >= *resources_.levels_from();
  if (degree == 1 || resources_.ring || by_levels) return shape;
  if (fitted_rule_) {
    parallel::RingLoad load;
    for (int64_t i = 0; i < sequences; ++i) load.add(tokens, cached);
    if (fitted_rule_->h(load) <= 0) shape.ring = AttentionExchange::pass_q;
    return shape;
  }
  PassShape other = shape;
  other.ring = AttentionExchange::pass_q;
  return costs_.lower_bound(other).seconds < costs_.lower_bound(shape).seconds ? other : shape;
}

PassShape ReplicaPasses::step(int degree, int masters, int64_t sequences, int64_t context) const {
  const parallel::PassModes modes = modes_of(resources_);
  const bool is_layout = costs_.scenario().is_layout();
  const int64_t unit = 2 * int64_t{is_layout ? parallel::layout_ranks : degree};
  PassShape shape = base_;
  shape.kind = PassKind::decode;
  shape.degrees.cp = degree;
  shape.ring = modes.decode_ring;
  shape.sharding = modes.sharding(sequences, false);
  shape.sequences = sequences;
  shape.cached = std::max<int64_t>(1, (context + unit - 1) / unit) * unit;
  shape.masters = resources_.elastic ? masters : 0;
  return shape;
}

const PassCost& ReplicaPasses::cost(const PassShape& shape) const {
  if (fidelity_ == Fidelity::one_rank) return costs_.estimate(shape);
  const bool is_step = shape.kind == PassKind::decode;
  const bool replays =
      fidelity_ == Fidelity::replayed || (fidelity_ == Fidelity::steps_replayed && is_step);
  return replays ? costs_.replayed(shape) : costs_.lower_bound(shape);
}

double replay_effort(PassCosts& costs, const resources::Resources& resources,
                     const PassLengths& lengths) {
  const ReplicaPasses passes(costs, resources, Fidelity::replayed);
  double sum = 0;
  for (const auto& [degree, of_degree] : spanning_passes(passes, resources, lengths)) {
    for (const PassShape& shape : of_degree.prefills) sum += costs.replay_effort(shape);
    for (const PassShape& shape : of_degree.steps) sum += costs.replay_effort(shape);
  }
  return sum;
}

ReplicaCostModel::ReplicaCostModel(PassCosts& costs, const resources::Resources& resources,
                                   const PassLengths& lengths, Fidelity fidelity) {
  const ReplicaPasses passes(costs, resources, fidelity);
  std::vector<PassShape> shapes;
  std::map<int, std::pair<size_t, size_t>> counts;  // of prefills and of steps, by degree
  for (const auto& [degree, of_degree] : spanning_passes(passes, resources, lengths)) {
    shapes.insert(shapes.end(), of_degree.prefills.begin(), of_degree.prefills.end());
    shapes.insert(shapes.end(), of_degree.steps.begin(), of_degree.steps.end());
    counts[degree] = {of_degree.prefills.size(), of_degree.steps.size()};
  }
  std::vector<PassCost> found(shapes.size());
  in_parallel(fidelity == Fidelity::lower_bound ? 1 : costs.scenario().threads, shapes.size(),
              [&](size_t i) { found[i] = passes.cost(shapes[i]); });
  for (auto next = found.begin(); const auto& [degree, count] : counts) {
    const auto steps = next + static_cast<std::ptrdiff_t>(count.first);
    const auto end = steps + static_cast<std::ptrdiff_t>(count.second);
    by_degree_[degree] = {{next, steps}, {steps, end}};
    next = end;
  }

  const OfDegree& first = by_degree_.begin()->second;
  teams_.emplace(schedule::PassTimes{schedule::RateFit(fitted(first.prefill)),
                                     schedule::RateFit(fitted(first.decode))},
                 costs_of(costs.scenario(), resources), resources.cp);
  for (const PassKind kind : {PassKind::prefill, PassKind::decode}) {
    int last = 0;
    PassRates from;
    for (const auto& [degree, of_degree] : by_degree_) {
      const PassRates to = fitted(of_degree.of(kind));
      for (int each = last == 0 ? degree : last + 1; each <= degree; ++each)
        teams_->begin_with(
            each, kind,
            each == degree ? to
                           : between(from, to, static_cast<double>(each - last) / (degree - last)));
      last = degree, from = to;
      for (const PassCost& pass : of_degree.of(kind))
        error_ =
            std::max(error_, std::abs(teams_->seconds(degree, kind, pass.work) / pass.seconds - 1));
    }
  }
}

PassCost ReplicaCostModel::of(PassKind kind, int degree, const PassWork& work) const {
  PassCost sum;
  sum.work = work;
  if (work.passes == 0) return sum;
  const auto above = by_degree_.upper_bound(degree);
  const OfDegree& of_degree = (above == by_degree_.begin() ? above : std::prev(above))->second;
  std::vector<PassWork> works;
  for (const PassCost& each : of_degree.of(kind)) works.push_back(each.work);
  const std::vector<double> times = mix_of(works, work);
  PassCost mixed;
  for (size_t i = 0; i < times.size(); ++i) mixed.add(of_degree.of(kind)[i], times[i]);
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

}  // namespace pecia::simulation
