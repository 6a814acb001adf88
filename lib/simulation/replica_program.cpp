// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/replica_program.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/api/gpu_traits.hpp"
#include "lib/base/core/error.hpp"
#include "lib/engine/schedule/job_limits.hpp"
#include "lib/model/attention/recent_slots.hpp"
#include "lib/ranks/parallel/level_rule.hpp"
#include "lib/ranks/parallel/virtual_ranks.hpp"
#include "lib/simulation/tune/tuned_setting.hpp"
#include "lib/work/cluster_files/op_time.hpp"

namespace pecia::simulation {
namespace {

using resources::Resources;

int ranks_of(const Resources& resources) {
  return resources.replica_ranks();
}

/// FLOP/s of attention where a rank's rows see as many keys as the rank has rows.
double attention_flops(const Scenario& scenario, const Resources& resources) {
  const model::ModelConfig& config = scenario.config;
  const DType held = resources.kv_dtype;
  kernels::OpWork op{"attention", held};
  op.rows = std::max<int64_t>(1, resources.max_batch_tokens / ranks_of(resources));
  op.operands = scenario.traits.operands_of(held);
  op.depth = static_cast<double>(op.rows);
  op.width = config.num_heads * config.widest_heads().dim;
  op.flops = op.depth * static_cast<double>(op.rows) * config.attention_flops_per_pair() /
             static_cast<double>(config.layers);
  return op.flops / cluster_files::op_seconds(op, scenario.cluster);
}

/// Slots that the sequences that begin in a pass, and copies of these, reserve on a rank of the instance
/// with most.
int64_t reserved_slots(const schedule::Plan& pass, int instances) {
  std::vector<int64_t> slots(instances);
  for (const auto* const beginning : {&pass.added, &pass.receiving.added})
    for (const schedule::NewSequence& added : *beginning)
      for (int instance = 0; instance < instances; ++instance)
        slots[instance] += added.state.reserved.at(instance);
  return std::ranges::max(slots);
}

/// As many, and the blocks of a sequence that are not full.
int64_t recent_slots(int64_t slots, const schedule::Plan& pass) {
  constexpr int64_t block = attention::RecentSlots::block;
  return (slots / block + 1 + 2 * std::ssize(pass.added)) * block;
}

/// Of a pass that begins all of its sequences.
Recording recording_of(const Scenario& scenario, const Resources& resources, schedule::Plan pass,
                       int rank) {
  constexpr int64_t any_memory = std::numeric_limits<int64_t>::max();
  const int64_t kv_tokens = reserved_slots(pass, resources.cp);
  const int64_t recent = resources.kv_recent_tokens > 0 ? recent_slots(kv_tokens, pass) : 0;
  execute::PhantomSettings settings =
      settings_of(scenario, resources, rank, kv_tokens, any_memory, recent);
  settings.replica.states = std::ssize(pass.added) + std::ssize(pass.receiving.added);
  return {std::move(settings), {}, std::move(pass)};
}

/// B/s of a link in long messages of collectives, for those that share it.
double collective_rate(const cluster_files::Cluster& cluster, comm::LinkLevel level) {
  constexpr double long_message = 1 << 24;
  return 1e9 * cluster.links[static_cast<size_t>(level)].gbs *
         cluster.efficiency.collective.of({.bytes = long_message});
}

/// The CPU's products, if its ranks have a peak for bf16.
DType bf16_operands(DType weights) {
  return weights != DType::fp32 ? DType::bf16 : DType::fp32;
}

/// Of a delta net. As many heads go side by side as have the recurrence's FLOP/s together when one head
/// takes its time for a row; on GPUs that take rows in together, for a part of a chunk.
kernels::RecurrencePace pace_of(const cluster_files::Cluster& cluster, int64_t key_dim,
                                int64_t value_dim) {
  constexpr int64_t rows = 4096, heads = 4096;  // so many that FLOP/s count
  const bool chunks = cluster.overhead.recurrent_chunk_us > 0;
  kernels::OpWork many{"recurrence", DType::fp32, rows};
  many.item_rows = rows, many.serial_rows = 1;
  many.depth = static_cast<double>(key_dim), many.width = heads * value_dim;
  const double of_row =
      chunks ? kernels::gpu_chunk_flops(heads, heads, key_dim, value_dim, true)
             : 6.0 * static_cast<double>(heads) * static_cast<double>(key_dim * value_dim);
  many.flops = rows * of_row;
  if (chunks) many.operands = DType::bf16, many.chunk_rows = kernels::gpu_chunk_rows;
  const double head_row_s = cluster_files::parts_of(many, cluster).computing / rows / heads;
  const double row_s =
      1e-6 * (chunks ? cluster.overhead.recurrent_chunk_us / kernels::gpu_chunk_rows
                     : cluster.overhead.recurrent_row_us);
  return row_s == 0 ? kernels::RecurrencePace{head_row_s, 1}
                    : kernels::RecurrencePace{row_s, row_s / head_row_s};
}

}  // namespace

kernels::BackendTraits traits_of(const cluster_files::Cluster& cluster, const job::Job& job) {
  const bool in_bf16 =
      cluster.rank.flops.contains(DType::bf16) && job.model.compute != job::Precision::fp32;
  kernels::BackendTraits traits;
  if (cluster.rank.gpu) {
    traits = kernels::gpu_traits();
    if (cluster.overhead.recurrent_chunk_us == 0) traits.takes_chunks = {};
  } else {
    const auto cpu = kernels::make_cpu_backend();
    traits.continues_attention = cpu->continues_attention();
    traits.merges_attention = cpu->merges_attention();
    traits.operand_type = bf16_operands;
    traits.query_type = [](DType keys, int64_t) { return bf16_operands(keys); };
  }
  traits.recurrence_pace = [cluster](int64_t key_dim, int64_t value_dim) {
    return pace_of(cluster, key_dim, value_dim);
  };
  if (!in_bf16) traits.operand_type = {}, traits.query_type = {};
  return traits;
}

DType wire_of(const Scenario& scenario) {
  return resources::wire_of(scenario.job, scenario.traits.operands_of(scenario.weights));
}

double all_to_all_bandwidth(const cluster_files::Cluster& cluster, int ranks) {
  const comm::LinkLevel level = comm::link_level(cluster.place(0), cluster.place(ranks - 1));
  return collective_rate(cluster, level) / std::min(cluster.sharing(level), ranks);
}

parallel::LinkCosts link_costs(const cluster_files::Cluster& cluster, int ranks) {
  const auto s_per_byte = [&](comm::LinkLevel level) {
    return cluster.sharing(level) / collective_rate(cluster, level);
  };
  const auto places = cluster.places(ranks);
  const bool has_racks =
      parallel::shape_of(comm::server_of_rank(places), comm::rack_of_rank(places)).has_racks();
  const comm::LinkLevel widest = comm::link_level(places.front(), places.back());
  return {s_per_byte(has_racks ? comm::LinkLevel::rack : widest),
          s_per_byte(comm::LinkLevel::server), cluster.latency_s(comm::LinkLevel::server, false),
          has_racks ? s_per_byte(comm::LinkLevel::system) : 0};
}

cluster_files::RingRule ring_of(const model::ModelConfig& config, const Resources& resources) {
  const model::KvHeads heads = config.widest_heads();
  const int64_t kv_heads = parallel::kv_heads_of_rank(resources.degrees(), heads.count);
  return {{},       resources.cp, kv_heads * (config.num_heads / heads.count),
          kv_heads, heads.dim,    resources.kv_dtype};
}

std::optional<parallel::SparseSetting> settled_levels(const Scenario& scenario,
                                                      const Resources& resources) {
  std::optional<parallel::SparseSetting> setting = resources.sparse;
  if (!resources.levels_from() || setting->micros) return setting;
  const model::ModelConfig& config = scenario.config;
  const int ranks = ranks_of(resources);
  parallel::RingInputs in;
  in.ranks = resources.cp;
  in.shape = schedule::ring_shape(config, resources);
  in.rates.flops = attention_flops(scenario, resources);
  in.rates.bandwidth = in.rates.all_to_all_bandwidth =
      all_to_all_bandwidth(scenario.cluster, ranks);
  in.load.add(resources.max_batch_tokens, 0);
  const auto levels = tune::levels_by_place(resources.level_places(scenario.cluster.places(ranks)))(
      setting->levels);
  setting->micros = parallel::micros_by_rule(in, levels, setting->rule);
  return setting;
}

execute::TrialPasses passes_of(const Scenario& scenario, const Resources& resources,
                               const parallel::PassModes& modes,
                               parallel::AttentionExchange prefill_ring,
                               std::optional<int64_t> tokens_per_pass) {
  return {.instances = resources.cp,
          .virtual_ranks = scenario.is_layout() ? parallel::layout_ranks : resources.cp,
          .modes = modes,
          .prefill_ring = prefill_ring,
          .levels_from = resources.levels_from(),
          .tokens_per_pass = tokens_per_pass};
}

schedule::Plan prefill_of_team(const execute::TrialPasses& passes, int64_t tokens, int64_t cached) {
  schedule::Plan plan = passes.feed(0, 1, tokens);
  plan.teams.front().ring = parallel::AttentionExchange::pass_kv;
  parallel::SequenceState& state = plan.added.front().state;
  state.length = cached;
  state.reserved.assign(passes.instances, 0);
  state.reserved.front() = cached + tokens;
  if (cached > 0) {
    state.held.resize(passes.instances);
    state.held.front() = {{0, cached, 1}};
    state.state_holder = 0;
  }
  schedule::PlanItem& item = plan.items.front();
  item.rows.first = cached;
  item.rows.virtual_ranks = 0;  // a team's rows are cut by its workers
  item.prompt_end = plan.turns.front().answer_begin = cached + tokens;
  if (passes.instances > 1) item.kept = {{0, tokens}};
  return plan;
}

schedule::Plan decode_step_of_team(const execute::TrialPasses& passes, int masters,
                                   int64_t sequences, int64_t tokens) {
  PECIA_CHECK(masters >= 1 && masters <= passes.instances, "{} masters of {} instances", masters,
              passes.instances);
  schedule::Plan plan = passes.step(0, sequences, tokens, true);
  parallel::Team& team = plan.teams.front();
  team.ring = passes.instances == 1 ? parallel::AttentionExchange::pass_kv
                                    : parallel::AttentionExchange::broadcast_q;
  team.holders = passes.instances - masters;
  for (schedule::PlanItem& item : plan.items) {
    item.rows.owner = static_cast<int32_t>(item.rows.sequence % masters);
    item.rows.virtual_ranks = 0;
  }
  for (size_t i = 0; i < plan.items.size(); ++i)
    plan.added[i].state.state_holder = plan.items[i].rows.owner;
  return plan;
}

execute::PhantomSettings settings_of(const Scenario& scenario, const Resources& resources, int rank,
                                     int64_t kv_tokens, int64_t memory_bytes,
                                     int64_t kv_recent_tokens) {
  const job::Job& job = scenario.job;
  const model::CodeUse codes = resources::code_use(job, scenario.config, 1, 1, resources.gpus);
  return {.ranks = ranks_of(resources),
          .rank = rank,
          .weights = scenario.weights,
          .quantize = resources::quantize_of(job),
          .keeps_codes = codes.kept,
          .gpus = resources.gpus,
          .device = {scenario.cluster.rank.name, 0, 1, "", ""},
          .memory_bytes = memory_bytes,
          .traits = scenario.traits,
          .replica = {.stages = resources.pp,
                      .sp = resources.sp,
                      .tp = resources.tp,
                      .kv_dtype = resources.kv_dtype,
                      .kv_tokens = kv_tokens,
                      .kv_recent_tokens = kv_recent_tokens,
                      .states_may_be_any = true,
                      .logprobs = job.generation.logprobs,
                      .prompt_logprobs = 0,
                      .places = scenario.cluster.places(ranks_of(resources)),
                      .layout_invariant = scenario.is_layout(),
                      .sparse = settled_levels(scenario, resources),
                      .ep = resources.ep,
                      .wire = resources.wire,
                      .copies_keys = resources.answering > 0,
                      .link_costs = link_costs(scenario.cluster, ranks_of(resources))}};
}

Program program_of(const Scenario& scenario, const Resources& resources, schedule::Plan pass,
                   int rank) {
  return record(scenario.config, recording_of(scenario, resources, std::move(pass), rank),
                Layers::folded);
}

std::vector<Program> programs_of(const Scenario& scenario, const Resources& resources,
                                 schedule::Plan pass) {
  std::vector<Program> programs;
  Recording recording = recording_of(scenario, resources, std::move(pass), 0);
  for (int& rank = recording.rank.rank; rank < ranks_of(resources); ++rank)
    programs.push_back(record(scenario.config, recording, Layers::folded));
  return programs;
}

}  // namespace pecia::simulation
