// SPDX-License-Identifier: Apache-2.0
#include "lib/foresight/passes.hpp"

#include <limits>
#include <numeric>

#include "lib/foresight/replay.hpp"
#include "lib/resources/resources.hpp"

namespace pecia::foresight {
namespace {

using schedule::PassKind;

execute::TrialPasses passes_of(const PassShape& shape) {
  const bool prefills = shape.kind == PassKind::prefill;
  return {.instances = shape.degrees.cp,
          .virtual_ranks = shape.degrees.cp,
          .modes = {.prefill = shape.sharding,
                    .decode = shape.sharding,
                    .decode_ring = prefills ? parallel::Ring::pass_q : shape.ring},
          .prefill_ring = shape.ring};
}

schedule::Plan plan_of(const PassShape& shape) {
  const execute::TrialPasses passes = passes_of(shape);
  return shape.kind == PassKind::prefill
             ? passes.feed(0, shape.sequences, shape.tokens, shape.cached)
             : passes.step(0, shape.sequences, shape.cached, true);
}

Program program_of(const PassSetting& setting, const PassShape& shape, const schedule::Plan& plan,
                   int rank) {
  const execute::TrialPasses passes = passes_of(shape);
  const auto ranks = static_cast<int>(shape.degrees.ranks());
  const int64_t slots = passes.slots(shape.cached) +
                        passes.slots(shape.tokens + passes.virtual_ranks) + passes.slots(1);
  return record(setting.config,
                {{.ranks = ranks,
                  .rank = rank,
                  .weights = setting.weights,
                  .quantize = resources::quantize_of(setting.job),
                  .memory_bytes = std::numeric_limits<int64_t>::max(),
                  .operand_type = setting.operand_type,
                  .worker = {.sp = shape.degrees.sp,
                             .tp = shape.degrees.tp,
                             .kv_dtype = setting.kv,
                             .kv_tokens = shape.sequences * slots,
                             .logprobs = setting.job.generation.logprobs,
                             .prompt_logprobs = 0,
                             .places = setting.cluster.places(ranks)}},
                 {},
                 plan},
                Layers::folded);
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

const PassFigures& Passes::at_least(const PassShape& shape) {
  const auto [at, is_new] = at_least_.try_emplace(shape.key());
  if (is_new) {
    const schedule::Plan plan = plan_of(shape);
    at->second = figures_of(work_of(shape, plan),
                            own_time(program_of(setting_, shape, plan, 0), 0, setting_.cluster));
  }
  return at->second;
}

const PassFigures& Passes::played(const PassShape& shape) {
  const auto [at, is_new] = played_.try_emplace(shape.key());
  PassFigures& figures = at->second;
  if (!is_new) return figures;
  const schedule::Plan plan = plan_of(shape);
  std::vector<Program> programs;
  for (int rank = 0; rank < shape.degrees.ranks(); ++rank)
    programs.push_back(program_of(setting_, shape, plan, rank));
  const PassTime time = replay(programs, setting_.cluster);

  figures = figures_of(work_of(shape, plan), own_time(programs.front(), 0, setting_.cluster));
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
