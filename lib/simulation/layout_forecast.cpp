// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/layout_forecast.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lib/base/report/format.hpp"
#include "lib/engine/execute/rank_needs.hpp"
#include "lib/ranks/parallel/virtual_ranks.hpp"
#include "lib/simulation/tune/tuned_setting.hpp"

namespace pecia::simulation {
namespace {

/// Slots on each rank for a sequence of `tokens` tokens, dealt in passes. Teams that change spread a
/// sequence over as many instances as they need.
int64_t slots_of(int64_t tokens, const resources::Resources& resources, bool is_layout) {
  const int64_t unit = 2 * int64_t{is_layout ? parallel::layout_ranks : resources.cp};
  const int64_t passes = tokens / resources.max_batch_tokens + 2;  // each is rounded up by itself
  return (tokens + passes * unit) / resources.cp;
}

std::string short_of(const std::string& what, int64_t needed, int64_t there,
                     const cluster_files::RankPeaks& rank) {
  return fmt::format("{} needs {} on each rank, and {} has {}", what, report::format_bytes(needed),
                     rank.name, report::format_bytes(there));
}

/// A batch makes no larger passes than all its prompts and no more answers at once than it has.
resources::Resources of_batch(resources::Resources resources, const Batch& batch) {
  const resources::BatchWork& work = batch.work();
  resources.max_batch_tokens =
      std::clamp<int64_t>(work.prompt_tokens, 1, resources.max_batch_tokens);
  resources.max_sequences = std::clamp<int64_t>(work.answers, 1, resources.max_sequences);
  return resources;
}

/// What some rank of a stage needs at most, of each.
execute::RankNeeds needs_of_stages(const Scenario& scenario,
                                   const resources::Resources& resources) {
  execute::RankNeeds most;
  for (int stage = 0; stage < resources.pp; ++stage) {
    const execute::RankNeeds needs =
        execute::needs_of_rank(stage * static_cast<int>(resources.degrees().ranks()), scenario.job,
                               scenario.config, resources, scenario.weights, scenario.traits);
    most.weight_bytes = std::max(most.weight_bytes, needs.weight_bytes);
    most.work_bytes = std::max(most.work_bytes, needs.work_bytes);
  }
  return most;
}

/// What the first rank needs. Where all layers are alike, three of them say what all of them do.
execute::RankNeeds needs_of(const Scenario& scenario, const resources::Resources& resources) {
  if (resources.pp > 1) return needs_of_stages(scenario, resources);
  const auto of_layers = [&](int64_t layers) {
    model::ModelConfig config = scenario.config;
    config.layers = layers;
    config.pattern.resize(layers);
    return execute::needs_of_rank(0, scenario.job, config, resources, scenario.weights,
                                  scenario.traits);
  };
  constexpr int64_t few = 3;
  const int64_t layers = scenario.config.layers;
  const auto& pattern = scenario.config.pattern;
  if (layers <= few || std::ranges::count(pattern, pattern.front()) != std::ssize(pattern))
    return of_layers(layers);
  execute::RankNeeds needs = of_layers(few);
  needs.weight_bytes += (layers - few) * (needs.weight_bytes - of_layers(few - 1).weight_bytes);
  return needs;
}

/// What a tied head that is packed takes beside the table that embeds (model::SharedPanels).
int64_t packed_head_bytes(const Scenario& scenario, const resources::Resources& resources) {
  const job::Job& job = scenario.job;
  const bool packs = !resources.gpus && !job.model.replicate &&
                     job.model.prepack.value_or(job.model.load == job::Load::mapped) &&
                     scenario.weights == DType::bf16 &&
                     resources::quantize_of(job) == model::Quantize::nothing &&
                     scenario.traits.operands_of(DType::bf16) == DType::bf16;
  if (!packs || !scenario.config.tied_embeddings) return 0;
  return scenario.config.vocab * scenario.config.hidden * size_of(DType::bf16) / resources.tp;
}

/// Operations (PassCosts::replay_effort) for one more layout beside a sweep, where it has many ranks.
constexpr double most_operations_beside = 1e6;

struct Change {
  std::string words;
  job::Job job;
  KeptDegrees kept;
  int ranks;
};

std::vector<Change> changes(const job::Job& job, const KeptDegrees& kept, int ranks,
                            int64_t longest) {
  std::vector<Change> all;
  for (const int64_t tokens : {8192, 2048, 512}) {
    job::Job fewer = job;
    fewer.batch.max_batch_tokens = tokens;
    if (tokens < job.batch.max_batch_tokens.value_or(longest))
      all.push_back({fmt::format("--set batch.max_batch_tokens={}", tokens), fewer, kept, ranks});
  }
  if (kept.dp || kept.cp || kept.sp || kept.tp || kept.ep)
    all.push_back({"other degrees than the job gives", job, {}, ranks});
  job::Job narrow = job;
  narrow.kv.dtype = job::Precision::fp8;
  constexpr int most_times = 64;
  for (int times = 2; times <= most_times; times *= 2)
    all.push_back({fmt::format("--ranks {}", times * ranks), job, kept, times * ranks});
  if (job.kv.dtype != narrow.kv.dtype) {
    all.push_back({"--set kv.dtype=fp8", narrow, kept, ranks});
    for (int times = 2; times <= most_times; times *= 2)
      all.push_back({fmt::format("--set kv.dtype=fp8 --ranks {}", times * ranks), narrow, kept,
                     times * ranks});
  }
  return all;
}

}  // namespace

RankMemory rank_memory(const Scenario& scenario, const resources::Resources& resources,
                       const Batch& batch) {
  const cluster_files::RankPeaks& rank = scenario.cluster.rank;
  const resources::Resources largest = of_batch(resources, batch);
  const execute::RankNeeds needs = needs_of(scenario, largest);
  RankMemory memory;
  memory.program_bytes = static_cast<int64_t>(rank.program_gib * 0x1p30);
  const int64_t room_bytes = static_cast<int64_t>(rank.memory_gib * 0x1p30) - memory.program_bytes;
  memory.weight_bytes = needs.weight_bytes + packed_head_bytes(scenario, resources);
  memory.work_bytes = needs.work_bytes;

  const int64_t aside =
      resources.gpus ? std::max(resources::activation_bytes(true), needs.work_bytes) : 0;
  const int64_t left = std::max<int64_t>(0, room_bytes - memory.weight_bytes - aside);
  resources::Resources settled = resources;
  settled.states = resources::most_states(scenario.job, scenario.config, nullptr, resources);
  const int64_t state_bytes = resources::state_memory_of_rank(scenario.config, settled);
  const int64_t kv_room =
      scenario.job.kv.memory.value_or(static_cast<int64_t>(0.8 * static_cast<double>(left))) -
      state_bytes;
  const bool is_layout = scenario.is_layout();
  for (size_t i = 0; i < batch.cached().size() && std::cmp_less(i, resources.max_sequences); ++i)
    memory.kv_wanted += slots_of(batch.cached()[i], resources, is_layout);
  const resources::KvSlots slots = resources::kv_slots(
      scenario.job, scenario.config, resources, std::max<int64_t>(0, kv_room), memory.kv_wanted);
  slots.write_to(settled);
  memory.kv_tokens = slots.tokens, memory.kv_recent_tokens = slots.recent_tokens;
  memory.kv_bytes = resources::kv_memory_of_rank(scenario.config, settled) + state_bytes;
  memory.free_bytes = room_bytes - memory.weight_bytes - memory.kv_bytes - memory.work_bytes;

  const int64_t longest = slots_of(batch.longest_sequence(), resources, is_layout);
  const auto bytes_of = [&](int64_t tokens) {
    settled.kv_tokens = tokens;
    return report::format_bytes(resources::kv_memory_of_rank(scenario.config, settled));
  };
  if (memory.weight_bytes > room_bytes)
    memory.why_not = short_of("the model", memory.weight_bytes, room_bytes, rank);
  else if (memory.weight_bytes + memory.work_bytes > room_bytes)
    memory.why_not =
        short_of(fmt::format("a pass of {} tokens beside the weights", largest.max_batch_tokens),
                 memory.work_bytes, room_bytes - memory.weight_bytes, rank);
  else if (longest > slots.room)
    memory.why_not =
        fmt::format("the longest request needs {} of keys and values on each rank, and {} {} {}",
                    bytes_of(longest), rank.name,
                    scenario.job.kv.memory ? "may use" : "has room for", bytes_of(slots.room));
  else if (memory.free_bytes < 0)
    memory.why_not = short_of("all together", room_bytes - memory.free_bytes, room_bytes, rank);
  return memory;
}

double parking_s(const cluster_files::Cluster& cluster, int64_t bytes) {
  const auto amount = static_cast<double>(bytes);
  if (!cluster.rank.gpu)
    return 2 * amount /
           (1e9 * cluster.rank.memory_gbs * cluster.efficiency.copy.of({.bytes = amount}));
  const auto level = static_cast<size_t>(comm::LinkLevel::rack);
  const double gbs = cluster.rank.host_gbs.value_or(cluster.links[level].gbs);
  return amount / (1e9 * gbs * cluster.efficiency.send.of({.bytes = amount}));
}

double first_touch_s(const cluster_files::RankPeaks& rank, int64_t bytes) {
  if (rank.first_touch_gbs <= 0) return 0;
  return 1e-9 * static_cast<double>(bytes) / rank.first_touch_gbs;
}

resources::Resources layout_resources(const Scenario& scenario, const job::Job::Parallel& parallel,
                                      int ranks, Batches& batches) {
  job::Job job = scenario.job;
  job.parallel = parallel;
  resources::Resources resources;
  resources.gpus = scenario.cluster.rank.gpu;
  resources::resolve_grid(job, scenario.config, ranks, resources);
  tune::settle_tuned(job, scenario.config,
                     std::min(batches.alone().longest_prompt(), scenario.config.max_positions), {},
                     resources);
  resources.kv_dtype = scenario.kv;
  resources.wire = wire_of(scenario);
  parallel::Degrees team = resources.degrees();
  if (resources.elastic) team.cp = 1;  // for each instance of a team
  resources.max_batch_tokens = resources::resolve_batch_tokens(
      job, scenario.config, parallel::row_ranks(team, resources.prefill), resources.gpus);
  resources.max_sequences = job.batch.max_sequences.value_or(resources::sequences_for(
      batches.of(scenario.job, resources).work(), scenario.config, resources));
  return resources;
}

bool fit_memory(LayoutForecast& layout, const Scenario& scenario, const Batch& batch) {
  layout.memory = rank_memory(scenario, layout.resources, batch);
  layout.resources.kv_tokens = layout.memory.kv_tokens;
  layout.resources.kv_recent_tokens = layout.memory.kv_recent_tokens;
  return !layout.memory.why_not;
}

BatchEnd end_of(const LayoutForecast& layout, const Scenario& scenario, const Batch& batch) {
  BatchEnd end = play(
      batch, scenario.job, scenario.config, layout.resources, *layout.times,
      parking_s(scenario.cluster, resources::kv_bytes_of_rank(scenario.config, layout.resources)));
  end.add_first_touch(
      first_touch_s(scenario.cluster.rank, layout.memory.kv_bytes + layout.memory.work_bytes));
  return end;
}

LayoutForecast forecast(PassCosts& costs, Batches& batches, const job::Job::Parallel& parallel,
                        int ranks, std::optional<int64_t> batch_tokens) {
  const Scenario& scenario = costs.scenario();
  LayoutForecast layout;
  layout.ranks = ranks;
  layout.parallel = parallel;
  layout.resources = layout_resources(scenario, parallel, ranks, batches);
  if (batch_tokens) layout.resources.max_batch_tokens = *batch_tokens;
  const Batch& batch = batches.of(scenario.job, layout.resources);
  if (!fit_memory(layout, scenario, batch)) return layout;
  if (ranks > all_played_ranks &&
      replay_effort(costs, layout.resources, lengths_of(batch, layout.resources)) >
          most_operations_beside)
    layout.fidelity = Fidelity::one_rank;
  layout.times.emplace(costs, layout.resources, lengths_of(batch, layout.resources),
                       layout.fidelity);
  layout.end = end_of(layout, scenario, batch);
  return layout;
}

std::string limit_of(const LayoutForecast& layout) {
  const BatchEnd& end = *layout.end;
  const double compute_s = end.prefill.compute_s + end.decode.compute_s;
  const double memory_s = end.prefill.memory_s + end.decode.memory_s;
  std::string limit = "compute";
  double most = compute_s;
  if (memory_s > most) {
    most = memory_s;
    const bool few = layout.memory.kv_tokens < layout.memory.kv_wanted;
    limit = few && end.decode.memory_s > end.prefill.memory_s ? "memory" : "memory bandwidth";
  }
  for (size_t level = 0; level < comm::num_link_levels; ++level) {
    const double waits = end.prefill.waiting_s[level] + end.decode.waiting_s[level];
    if (waits <= most) continue;
    most = waits;
    limit = fmt::format("link {}", comm::link_level_names[level]);
  }
  return limit;
}

bool fits_somewhere(const Scenario& scenario, Batches& batches, const KeptDegrees& kept,
                    int ranks) {
  for (const job::Job::Parallel& parallel :
       layouts_of(ranks, scenario.job, kept, scenario.config)) {
    const auto resources = layout_resources(scenario, parallel, ranks, batches);
    if (!rank_memory(scenario, resources, batches.of(scenario.job, resources)).why_not) return true;
  }
  return false;
}

std::optional<std::string> would_fit(const Scenario& scenario, Batches& batches,
                                     const KeptDegrees& kept, int ranks) {
  for (const Change& change :
       changes(scenario.job, kept, ranks, batches.alone().work().prompt_tokens)) {
    Scenario changed{change.job,  scenario.config, scenario.cluster, scenario.weights,
                     scenario.kv, scenario.traits, scenario.threads};
    if (change.job.kv.dtype) changed.kv = resources::dtype_of(*change.job.kv.dtype);
    if (fits_somewhere(changed, batches, change.kept, change.ranks)) return change.words;
  }
  return {};
}

}  // namespace pecia::simulation
