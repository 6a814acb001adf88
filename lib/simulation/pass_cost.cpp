// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/pass_cost.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lib/work/cluster_files/op_time.hpp"

namespace pecia::simulation {
namespace {

using schedule::PassKind;
using ByLevel = std::array<double, comm::num_link_levels>;

/// Messages that started together: when they are done, and the level that takes longest.
struct Sent {
  double done_s = 0;
  size_t level = 0;
};

/// A rank on its way through its program, without the others. `alike`: they do what it does.
class Walk {
 public:
  Walk(int rank, const cluster_files::Cluster& cluster, bool alike)
      : rank_(rank), cluster_(cluster), working_(alike ? 1 : 0) {
    for (size_t level = 0; level < rates_.size(); ++level)
      rates_[level] = 1e9 * cluster.links[level].gbs /
                      (alike ? cluster.sharing(static_cast<comm::LinkLevel>(level))
                             : cluster.links[level].adapters);
    // What leaves a rack leaves its server as well.
    double& system = rates_[static_cast<size_t>(comm::LinkLevel::system)];
    if (alike) system = std::min(system, rates_[static_cast<size_t>(comm::LinkLevel::rack)]);
    now_ = cost_.times.other_s = 1e-6 * cluster.overhead.step_us;
  }

  void step(const Step& step) {
    std::visit([this](const auto& what) { take(what); }, step.what);
  }

  PassCost result() && {
    cost_.seconds = cost_.times.end_s = now_;
    return cost_;
  }

 private:
  void take(const kernels::OpWork& op) {
    const double seconds = cluster_files::op_seconds(op, cluster_, working_);
    const auto [computing, moving] = cluster_files::parts_of(op, cluster_);
    (computing > moving ? cost_.compute_s : cost_.memory_s) += seconds;
    (op.flops == 0                     ? cost_.times.other_s
     : kernels::multiplies_weights(op) ? cost_.times.gemm_s
                                       : cost_.times.attention_s) += seconds;
    now_ += seconds;
  }

  void take(const Copy& copy) {
    const double seconds =
        cluster_files::copy_seconds(static_cast<double>(copy.bytes), cluster_, working_);
    cost_.memory_s += seconds;
    cost_.times.other_s += seconds;
    now_ += seconds;
  }

  void take(const comm::PhantomStart& start) {
    const bool follows = !start.in_series && start.step > 0;
    const double begin = follows ? std::max(now_, sent_.back().done_s) : now_;
    ByLevel out{}, in{};
    cost_.messages += static_cast<double>(start.sends.size());
    const int peers = num_remote_peers(start, rank_, cluster_);
    for (const comm::PhantomMessage& message : start.sends) {
      const size_t level = level_to(message.peer);
      cost_.sent_bytes[level] += static_cast<double>(message.bytes);
      out[level] += on_link(message.bytes, start.in_series, level, peers);
    }
    for (const comm::PhantomMessage& message : start.receives) {
      const size_t level = level_to(message.peer);
      in[level] += fastest_on_link(message.bytes, start.in_series, level);
    }
    Sent sent{begin, 0};
    for (size_t level = 0; level < out.size(); ++level) {
      const double bytes = std::max(out[level], in[level]);
      const double latency_s =
          cluster_.latency_s(static_cast<comm::LinkLevel>(level), start.in_series);
      const double done_s = begin + latency_s + bytes / rates_[level];
      if (bytes > 0 && done_s > sent.done_s) sent = {done_s, level};
    }
    sent_.push_back(sent);
    if (cluster_.rank.in_order && !start.in_series) take(Wait{1});
  }

  void take(const Wait& wait) {
    const Sent& sent = sent_.at(sent_.size() - static_cast<size_t>(wait.starts_ago));
    const double waits = std::max(0.0, sent.done_s - now_);
    cost_.times.exposed_comm_s += waits;
    cost_.waiting_s[sent.level] += waits;
    now_ += waits;
  }

  /// A message's bytes, and those that the link could have moved beside.
  double on_link(int64_t bytes, bool in_series, size_t level, int peers) const {
    const auto size = static_cast<double>(bytes);
    return size /
           cluster_.share_of_message(size, in_series, static_cast<comm::LinkLevel>(level), peers);
  }

  /// The same of a message that comes: to how many others its sender sends is not known.
  double fastest_on_link(int64_t bytes, bool in_series, size_t level) const {
    constexpr int several = 2;
    return std::min(on_link(bytes, in_series, level, 1), on_link(bytes, in_series, level, several));
  }

  size_t level_to(int peer) const {
    return static_cast<size_t>(cluster_.level_between(rank_, peer));
  }

  int rank_;
  const cluster_files::Cluster& cluster_;
  double working_;   ///< share of the other ranks of its server that work when it does
  ByLevel rates_{};  ///< of links, B/s
  double now_ = 0;
  std::vector<Sent> sent_;
  PassCost cost_;
};

PassCost walked(const Program& program, int rank, const cluster_files::Cluster& cluster,
                bool alike) {
  Walk walk(rank, cluster, alike);
  for (const Section& section : program)
    for (int64_t time = 0; time < section.times; ++time)
      for (const Step& step : section.steps) walk.step(step);
  return std::move(walk).result();
}

resources::Resources resources_of(const Scenario& scenario, const PassShape& shape) {
  resources::Resources resources;
  resources.cp = shape.degrees.cp, resources.sp = shape.degrees.sp, resources.tp = shape.degrees.tp;
  resources.ep = shape.degrees.ep;
  resources.pp = shape.stages;
  resources.kv_dtype = scenario.kv;
  resources.wire = wire_of(scenario);
  resources.sparse = shape.levels;
  return resources;
}

schedule::Plan plan_of(const Scenario& scenario, const resources::Resources& resources,
                       const PassShape& shape) {
  const bool prefills = shape.kind == PassKind::prefill;
  const parallel::PassModes modes{
      .prefill = shape.sharding,
      .decode = shape.sharding,
      .decode_ring = prefills ? parallel::AttentionExchange::pass_q : shape.ring};
  const execute::TrialPasses passes =
      passes_of(scenario, resources, modes, shape.ring, shape.tokens_per_pass);
  if (shape.masters > 0)
    return prefills ? prefill_of_team(passes, shape.tokens, shape.cached)
                    : decode_step_of_team(passes, shape.masters, shape.sequences, shape.cached);
  return prefills ? passes.feed(0, shape.sequences, shape.tokens, shape.cached)
                  : passes.step(0, shape.sequences, shape.cached, true);
}

/// What the host does in each layer of a prompt's pass on several servers.
void add_layers(const Scenario& scenario, const PassShape& shape, PassCost& cost) {
  const cluster_files::Cluster& cluster = scenario.cluster;
  if (shape.kind != PassKind::prefill || shape.degrees.ranks() <= cluster.ranks_per_server) return;
  const double seconds =
      1e-6 * cluster.overhead.layer_us * static_cast<double>(scenario.config.layers);
  cost.seconds += seconds;
  cost.times.other_s += seconds;
  cost.times.end_s += seconds;
}

schedule::PassWork work_of(const PassShape& shape, const schedule::Plan& plan) {
  const auto [prompts, answers] = schedule::busiest_work(plan);
  return shape.kind == PassKind::prefill ? prompts : answers;
}

}  // namespace

PassCost rank_lower_bound(const Program& program, int rank, const cluster_files::Cluster& cluster) {
  return walked(program, rank, cluster, false);
}

PassCost rank_estimate(const Program& program, int rank, const cluster_files::Cluster& cluster) {
  return walked(program, rank, cluster, true);
}

void PassCost::add(const PassCost& more, double times_of_it) {
  const auto add = [&](double& sum, double each) { sum += times_of_it * each; };
  add(seconds, more.seconds);
  add(times.gemm_s, more.times.gemm_s);
  add(times.attention_s, more.times.attention_s);
  add(times.other_s, more.times.other_s);
  add(times.exposed_comm_s, more.times.exposed_comm_s);
  add(times.end_s, more.times.end_s);
  add(compute_s, more.compute_s);
  add(memory_s, more.memory_s);
  add(messages, more.messages);
  for (size_t level = 0; level < waiting_s.size(); ++level) {
    add(waiting_s[level], more.waiting_s[level]);
    add(sent_bytes[level], more.sent_bytes[level]);
  }
}

template <typename Find>
const PassCost& PassCosts::Known::of(const PassShape& shape, const Find& find) {
  Entry* entry = nullptr;
  {
    const std::scoped_lock lock(mutex_);
    entry = &entries_[shape.key()];
  }
  std::call_once(entry->once, [&] { entry->cost = find(shape); });
  return entry->cost;
}

int64_t PassCosts::Known::size() const {
  const std::scoped_lock lock(mutex_);
  return static_cast<int64_t>(entries_.size());
}

bool PassCosts::Known::has(const PassShape& shape) const {
  const std::scoped_lock lock(mutex_);
  return entries_.contains(shape.key());
}

const PassCost& PassCosts::lower_bound(const PassShape& shape) {
  return lower_bounds_.of(
      shape, [this](const PassShape& of) { return find_of_rank(of, rank_lower_bound); });
}

const PassCost& PassCosts::estimate(const PassShape& shape) {
  return estimates_.of(shape,
                       [this](const PassShape& of) { return find_of_rank(of, rank_estimate); });
}

const PassCost& PassCosts::replayed(const PassShape& shape) {
  return replayed_.of(shape, [this](const PassShape& of) { return replay_all(of); });
}

double PassCosts::replay_effort(const PassShape& shape) {
  if (replayed_.has(shape)) return 0;
  const auto ranks = static_cast<double>(shape.ranks());
  const auto rows = static_cast<double>(shape.sequences * shape.tokens);
  const auto places = static_cast<double>(shape.sequences * shape.degrees.cp);
  // Measured on a core of Zen 5: a rank is recorded in half a millisecond, a row in 10 ns, and an
  // instance of a sequence in 0.13 µs. Of messages that take 2 to 6 µs a part is played.
  return ranks * (500 + 0.01 * rows + 0.13 * places + estimate(shape).messages);
}

std::vector<Program> PassCosts::programs(const PassShape& shape) const {
  const resources::Resources resources = resources_of(scenario_, shape);
  return programs_of(scenario_, resources, plan_of(scenario_, resources, shape));
}

PassCost PassCosts::find_of_rank(const PassShape& shape, OfRank of_rank) const {
  const resources::Resources resources = resources_of(scenario_, shape);
  schedule::Plan plan = plan_of(scenario_, resources, shape);
  const schedule::PassWork work = work_of(shape, plan);
  const int rank = shape.degrees.sp * shape.degrees.tp - 1;
  const Program program = program_of(scenario_, resources, std::move(plan), rank);
  PassCost cost = of_rank(program, rank, scenario_.cluster);
  add_layers(scenario_, shape, cost);
  // The first stage's rank tells of one stage, and all take about as long.
  if (shape.stages > 1) cost.add(PassCost(cost), shape.stages - 1);
  cost.work = work;
  return cost;
}

PassCost PassCosts::replay_all(const PassShape& shape) const {
  const resources::Resources resources = resources_of(scenario_, shape);
  schedule::Plan plan = plan_of(scenario_, resources, shape);
  const schedule::PassWork work = work_of(shape, plan);
  const std::vector<Program> programs = programs_of(scenario_, resources, std::move(plan));
  const ReplayResult result = replay(programs, scenario_.cluster);

  PassCost cost = rank_lower_bound(programs.front(), 0, scenario_.cluster);
  cost.work = work;
  cost.sent_bytes = {};
  cost.messages = static_cast<double>(result.messages);
  for (int rank = 0; rank < shape.ranks(); ++rank) {
    const auto sent = rank_lower_bound(programs[rank], rank, scenario_.cluster).sent_bytes;
    for (size_t level = 0; level < sent.size(); ++level) cost.sent_bytes[level] += sent[level];
  }
  cost.seconds = result.seconds;
  cost.times = result.busiest();
  add_layers(scenario_, shape, cost);
  const double own_s = std::accumulate(cost.waiting_s.begin(), cost.waiting_s.end(), 0.0);
  if (own_s > 0)
    for (double& waits : cost.waiting_s) waits *= cost.times.exposed_comm_s / own_s;
  return cost;
}

}  // namespace pecia::simulation
