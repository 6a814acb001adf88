// SPDX-License-Identifier: Apache-2.0
#include "lib/foresight/passes.hpp"

#include <numeric>

#include "lib/foresight/passes_of_teams.hpp"

namespace pecia::foresight {
namespace {

using schedule::PassKind;

resources::Resources resources_of(const PassSetting& setting, const PassShape& shape) {
  resources::Resources resources;
  resources.cp = shape.degrees.cp, resources.sp = shape.degrees.sp, resources.tp = shape.degrees.tp;
  resources.ep = shape.degrees.ep;
  resources.kv_dtype = setting.kv;
  resources.sparse = shape.levels;
  return resources;
}

schedule::Plan plan_of(const Replica& replica, const PassShape& shape) {
  const bool prefills = shape.kind == PassKind::prefill;
  const parallel::PassModes modes{.prefill = shape.sharding,
                                  .decode = shape.sharding,
                                  .decode_ring = prefills ? parallel::Ring::pass_q : shape.ring};
  const execute::TrialPasses passes = passes_of(replica, modes, shape.ring, shape.tokens_per_pass);
  if (shape.masters > 0)
    return prefills ? read_by_team(passes, shape.tokens, shape.cached)
                    : step_of_team(passes, shape.masters, shape.sequences, shape.cached);
  return prefills ? passes.feed(0, shape.sequences, shape.tokens, shape.cached)
                  : passes.step(0, shape.sequences, shape.cached, true);
}

schedule::PassWork work_of(const PassShape& shape, const schedule::Plan& plan) {
  const auto [prompts, answers] = schedule::busiest_work(plan);
  return shape.kind == PassKind::prefill ? prompts : answers;
}

PassFigures figures_of(const schedule::PassWork& work, const OwnTime& own) {
  return {work,         own.times.end_s, own.times,     own.compute_s,
          own.memory_s, own.waiting_s,   own.sent_bytes};
}

}  // namespace

void PassFigures::add(const PassFigures& more, double times_of_it) {
  const auto add = [&](double& sum, double each) { sum += times_of_it * each; };
  add(seconds, more.seconds);
  add(times.gemm_s, more.times.gemm_s);
  add(times.attention_s, more.times.attention_s);
  add(times.other_s, more.times.other_s);
  add(times.exposed_comm_s, more.times.exposed_comm_s);
  add(times.end_s, more.times.end_s);
  add(compute_s, more.compute_s);
  add(memory_s, more.memory_s);
  for (size_t level = 0; level < waiting_s.size(); ++level) {
    add(waiting_s[level], more.waiting_s[level]);
    add(sent_bytes[level], more.sent_bytes[level]);
  }
}

template <typename Find>
const PassFigures& Passes::Known::of(const PassShape& shape, const Find& find) {
  Entry* entry = nullptr;
  {
    const std::scoped_lock lock(mutex_);
    entry = &entries_[shape.key()];
  }
  std::call_once(entry->once, [&] { entry->figures = find(shape); });
  return entry->figures;
}

int64_t Passes::Known::size() const {
  const std::scoped_lock lock(mutex_);
  return static_cast<int64_t>(entries_.size());
}

const PassFigures& Passes::at_least(const PassShape& shape) {
  return at_least_.of(shape, [this](const PassShape& of) { return find_least(of); });
}

const PassFigures& Passes::played(const PassShape& shape) {
  return played_.of(shape, [this](const PassShape& of) { return play(of); });
}

PassFigures Passes::find_least(const PassShape& shape) const {
  const resources::Resources resources = resources_of(setting_, shape);
  const Replica replica = setting_.replica(resources);
  const schedule::Plan plan = plan_of(replica, shape);
  const int rank = shape.degrees.sp * shape.degrees.tp - 1;
  return figures_of(
      work_of(shape, plan),
      own_time(program_of(replica, setting_.cluster, plan, rank), rank, setting_.cluster));
}

std::vector<Program> Passes::programs(const PassShape& shape) const {
  const resources::Resources resources = resources_of(setting_, shape);
  const Replica replica = setting_.replica(resources);
  return programs_of(replica, setting_.cluster, plan_of(replica, shape));
}

PassFigures Passes::play(const PassShape& shape) const {
  const resources::Resources resources = resources_of(setting_, shape);
  const Replica replica = setting_.replica(resources);
  const schedule::Plan plan = plan_of(replica, shape);
  const std::vector<Program> programs = programs_of(replica, setting_.cluster, plan);
  const PassTime time = replay(programs, setting_.cluster);

  PassFigures figures =
      figures_of(work_of(shape, plan), own_time(programs.front(), 0, setting_.cluster));
  figures.sent_bytes = {};
  for (int rank = 0; rank < shape.degrees.ranks(); ++rank) {
    const auto sent = own_time(programs[rank], rank, setting_.cluster).sent_bytes;
    for (size_t level = 0; level < sent.size(); ++level) figures.sent_bytes[level] += sent[level];
  }
  figures.seconds = time.seconds;
  figures.times = time.busiest();
  const double own_s = std::accumulate(figures.waiting_s.begin(), figures.waiting_s.end(), 0.0);
  if (own_s > 0)
    for (double& waits : figures.waiting_s) waits *= figures.times.exposed_comm_s / own_s;
  return figures;
}

}  // namespace pecia::foresight
