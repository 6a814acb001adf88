// SPDX-License-Identifier: Apache-2.0
#include "lib/foresight/rank_memory.hpp"

#include <algorithm>
#include <utility>

#include "lib/execute/rank_needs.hpp"
#include "lib/parallel/virtual_ranks.hpp"
#include "lib/report/format.hpp"

namespace pecia::foresight {
namespace {

/// Slots on each rank for a sequence of so many tokens, dealt in passes. Teams that change spread a
/// sequence over as many instances as they need.
int64_t slots_of(int64_t tokens, const resources::Resources& resources, bool is_layout) {
  const int64_t unit = 2 * int64_t{is_layout ? parallel::layout_ranks : resources.cp};
  const int64_t passes = tokens / resources.max_batch_tokens + 2;  // each is rounded up by itself
  return (tokens + passes * unit) / resources.cp;
}

std::string short_of(const std::string& what, int64_t needed, int64_t there,
                     const machines::RankPeaks& rank) {
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

/// What the first rank needs. Where all layers are alike, three of them say what all of them do.
execute::RankNeeds needs_of(const PassSetting& setting, const resources::Resources& resources) {
  const auto of_layers = [&](int64_t layers) {
    model::ModelConfig config = setting.config;
    config.layers = layers;
    config.pattern.resize(layers);
    return execute::needs_of_rank(0, setting.job, config, resources, setting.weights,
                                  setting.traits);
  };
  constexpr int64_t few = 3;
  const int64_t layers = setting.config.layers;
  const auto& pattern = setting.config.pattern;
  if (layers <= few || std::ranges::count(pattern, pattern.front()) != std::ssize(pattern))
    return of_layers(layers);
  execute::RankNeeds needs = of_layers(few);
  needs.weight_bytes += (layers - few) * (needs.weight_bytes - of_layers(few - 1).weight_bytes);
  return needs;
}

/// What a tied head that is packed takes beside the table that embeds (model::SharedPanels).
int64_t packed_head_bytes(const PassSetting& setting, const resources::Resources& resources) {
  const job::Job& job = setting.job;
  const bool packs = !resources.gpus && !job.model.replicate &&
                     job.model.prepack.value_or(job.model.load == job::Load::mapped) &&
                     setting.weights == DType::bf16 &&
                     resources::quantize_of(job) == model::Quantize::nothing &&
                     setting.traits.operands_of(DType::bf16) == DType::bf16;
  if (!packs || !setting.config.tied_embeddings) return 0;
  return setting.config.vocab * setting.config.hidden * size_of(DType::bf16) / resources.tp;
}

}  // namespace

RankMemory rank_memory(const PassSetting& setting, const resources::Resources& resources,
                       const Batch& batch) {
  const machines::RankPeaks& rank = setting.cluster.rank;
  const resources::Resources largest = of_batch(resources, batch);
  const execute::RankNeeds needs = needs_of(setting, largest);
  RankMemory memory;
  memory.program_bytes = static_cast<int64_t>(rank.program_gib * 0x1p30);
  const int64_t room_bytes = static_cast<int64_t>(rank.memory_gib * 0x1p30) - memory.program_bytes;
  memory.weight_bytes = needs.weight_bytes + packed_head_bytes(setting, resources);
  memory.work_bytes = needs.work_bytes;

  const int64_t aside =
      resources.gpus ? std::max(resources::activation_bytes(true), needs.work_bytes) : 0;
  const int64_t left = std::max<int64_t>(0, room_bytes - memory.weight_bytes - aside);
  const int64_t kv_room =
      setting.job.kv.memory.value_or(static_cast<int64_t>(0.8 * static_cast<double>(left)));
  const bool is_layout = setting.job.reproducible == parallel::Reproducible::layout;
  for (size_t i = 0; i < batch.cached().size() && std::cmp_less(i, resources.max_sequences); ++i)
    memory.kv_wanted += slots_of(batch.cached()[i], resources, is_layout);
  const resources::KvSlots slots =
      resources::kv_slots(setting.job, setting.config, resources, kv_room, memory.kv_wanted);
  resources::Resources settled = resources;
  slots.write_to(settled);
  memory.kv_tokens = slots.tokens, memory.kv_recent_tokens = slots.recent_tokens;
  memory.kv_bytes = resources::kv_memory_of_rank(setting.config, settled);
  memory.free_bytes = room_bytes - memory.weight_bytes - memory.kv_bytes - memory.work_bytes;

  const int64_t longest = slots_of(batch.longest_sequence(), resources, is_layout);
  const auto bytes_of = [&](int64_t tokens) {
    settled.kv_tokens = tokens;
    return report::format_bytes(resources::kv_memory_of_rank(setting.config, settled));
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
                    setting.job.kv.memory ? "may use" : "has room for", bytes_of(slots.room));
  else if (memory.free_bytes < 0)
    memory.why_not = short_of("all together", room_bytes - memory.free_bytes, room_bytes, rank);
  return memory;
}

double first_touch_s(const machines::RankPeaks& rank, int64_t bytes) {
  if (rank.first_touch_gbs <= 0) return 0;
  return 1e-9 * static_cast<double>(bytes) / rank.first_touch_gbs;
}

}  // namespace pecia::foresight
