// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/execute/replica.hpp"

#include <algorithm>
#include <utility>

#include "lib/model/attention/device_clock.hpp"
#include "lib/model/layers/recurrent_mixer.hpp"

namespace pecia::execute {
namespace {

/// KV heads of this rank in a layer with `num_kv_heads` in all.
int64_t held_kv_heads(const model::ModelConfig& config, const parallel::BlockPlace& place,
                      int64_t num_kv_heads) {
  return attention::Attention::held_heads(place, config.num_heads, num_kv_heads).kv.size();
}

attention::KvShape kv_shape(const model::ModelConfig& config, const parallel::BlockPlace& place,
                            DType dtype) {
  return {config.layers, held_kv_heads(config, place, config.num_kv_heads), config.head_dim, dtype,
          config.values_in_keys()};
}

std::vector<attention::LayerKeys> layer_keys(const model::ModelConfig& config,
                                             const parallel::BlockPlace& place) {
  std::vector<attention::LayerKeys> each;
  if (!config.full_heads && config.sharing_layers == 0 && !config.recurrent) return each;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const auto [count, dim] = config.heads(layer);
    each.push_back({held_kv_heads(config, place, count), dim, config.keys_of(layer)});
  }
  return each;
}

attention::HeadCounts head_counts(const model::ModelConfig& config) {
  attention::HeadCounts heads{config.num_heads,
                              config.num_kv_heads,
                              config.attention_scale,
                              config.kv_heads_of_layers(),
                              {}};
  if (const auto& latent = config.latent)
    heads.latent = {latent->kv_rank, latent->nope_dim, latent->rope_dim, latent->value_dim};
  return heads;
}

attention::RecentLayers recent_layers(const model::ModelConfig& config,
                                      const Replica::Settings& settings) {
  attention::RecentLayers recent;
  if (settings.kv_recent_tokens == 0) return recent;
  PECIA_CHECK(!settings.layout_invariant && !settings.sparse,
              "layers that keep recent tokens, with passes by levels or for virtual ranks");
  recent.window = config.widest_window();
  for (const kernels::Window window : config.windows())
    recent.are.push_back(static_cast<bool>(window));
  recent.margin = attention::RecentSlots::margin;
  recent.capacity = settings.kv_recent_tokens;
  return recent;
}

attention::OtherStages other_stages(const model::ModelConfig& config,
                                    const Replica::Settings& settings) {
  if (settings.stages == 1) return {};
  const auto layers_of = [](const model::StoringLayers& of) {
    return attention::OtherStages::Layers{of.without_window, of.with_window};
  };
  return {layers_of(config.stage.before), layers_of(config.stage.after),
          config.full_heads || settings.kv_recent_tokens > 0};
}

std::unique_ptr<recurrence::RecurrentStates> make_states(const model::ModelConfig& config,
                                                         const parallel::BlockPlace& place,
                                                         const Replica::Settings& settings,
                                                         device::Device& device) {
  if (!config.recurrent) return nullptr;
  return std::make_unique<recurrence::RecurrentStates>(
      model::RecurrentMixer::state_shape(config, place), settings.states,
      settings.states_may_be_any, device);
}

kernels::RowInvariant row_invariant(const Replica::Settings& settings) {
  return settings.layout_invariant ? kernels::RowInvariant::yes : kernels::RowInvariant::no;
}

/// Collective over `ranks`.
DType wire_of(const Replica::Settings& settings, const model::WeightViews& weights,
              const attention::Compute& compute, comm::Communicator& ranks) {
  if (settings.wire) return *settings.wire;
  const DType operands = compute.backend.operand_type(weights.matrix_type());
  const bool narrow = operands == DType::bf16 && !settings.layout_invariant;
  return ranks.all_reduce_max(narrow ? 0 : 1) == 0 ? DType::bf16 : DType::fp32;
}

/// Lets gathers and sums of the group go by servers and by racks where that pays.
void settle_routes(comm::Communicator& group, const parallel::LinkCosts& costs,
                   comm::RankLabels& labels) {
  const parallel::GroupShape shape = parallel::shape_of(labels.servers, labels.racks);
  labels.least_block_by_racks = parallel::least_block_by_racks(costs, shape);
  const int64_t least = parallel::least_block_by_servers(costs, shape);
  if (least != parallel::no_block) group.set_least_block_by_servers(least);
}

/// Lets sums of the group's steps go through peer memory where that pays. Returns how they travel.
/// Collective over the group.
std::string settle_sums(comm::Communicator& group, const parallel::LinkCosts& costs,
                        std::span<const int> servers) {
  if (std::ranges::any_of(servers, [&](int server) { return server != servers.front(); }))
    return "sums of steps by NCCL, since their ranks are on several servers";
  const int64_t most = parallel::most_one_shot_bytes(costs, group.size());
  const std::string why_not = group.find_one_shot(most);
  if (!why_not.empty()) return fmt::format("sums of steps by NCCL ({})", why_not);
  return fmt::format("sums of steps of up to {} KiB through peer memory", most >> 10);
}

/// Collective over `ranks`.
attention::ReplicaGroups groups_of(comm::Communicator& ranks, const Replica::Settings& settings,
                                   DType wire) {
  auto groups =
      attention::make_replica_groups(ranks, settings.sp, settings.tp, settings.places, settings.ep,
                                     wire, settings.copies_keys, settings.stages);
  groups.link_costs = settings.link_costs;
  settle_routes(*groups.tp, settings.link_costs, groups.tp_labels);
  settle_routes(*groups.block, settings.link_costs, groups.block_labels);
  // In layout's order more than two ranks are added by pairs.
  for (const auto& [group, labels] : {std::pair(groups.tp.get(), &groups.tp_labels),
                                      std::pair(groups.block.get(), &groups.block_labels)})
    if (group->on_stream() && settings.tp > 1 && (group == groups.tp.get() || settings.sp > 1) &&
        (group->size() == 2 || !settings.layout_invariant))
      groups.sums_by = settle_sums(*group, settings.link_costs, labels->servers);
  return groups;
}

/// The device times the spans of ops where its memory is apart from the host's.
const attention::Compute& timed(const attention::Compute& compute, bool memory_is_apart) {
  if (memory_is_apart)
    compute.recorder.time_by(std::make_unique<attention::DeviceClock>(
        compute.device, compute.stream,
        [&recorder = compute.recorder] { return recorder.now_ns(); }));
  return compute;
}

comm::Communicator& transfers(const std::unique_ptr<comm::Communicator>& tensors,
                              comm::Communicator& ranks) {
  return tensors ? *tensors : ranks;
}

}  // namespace

Replica::Settings Replica::settings_of(const job::Job& job, const resources::Resources& resources) {
  return {.stages = resources.pp,
          .sp = resources.sp,
          .tp = resources.tp,
          .kv_dtype = resources.kv_dtype,
          .kv_tokens = resources.kv_tokens,
          .kv_recent_tokens = resources.kv_recent_tokens,
          .states = resources.states,
          .logprobs = job.generation.logprobs,
          .prompt_logprobs = job.generation.prompt_logprobs,
          .layout_invariant = job.reproducible == parallel::Reproducible::layout,
          .sparse = resources.sparse,
          .ep = resources.ep,
          .wire = resources.wire   ? resources.wire
                  : job.model.wire ? std::optional(resources::wire_of(job, DType::fp32))
                                   : std::nullopt,
          .copies_keys = resources.answering > 0};
}

Replica::Replica(comm::Communicator& ranks, std::unique_ptr<comm::Communicator> tensors,
                 const model::ModelConfig& config, const model::WeightViews& weights,
                 const attention::Compute& compute, const Settings& settings)
    : tensors_(std::move(tensors)),
      compute_(timed(compute, tensors_ != nullptr)),
      groups_(groups_of(transfers(tensors_, ranks), settings,
                        wire_of(settings, weights, compute, ranks))),
      cache_(kv_shape(config, groups_.place, settings.kv_dtype), settings.kv_tokens, compute.device,
             recent_layers(config, settings), layer_keys(config, groups_.place)),
      attention_(groups_, head_counts(config), config.windows(), compute, cache_,
                 row_invariant(settings), settings.sparse),
      kv_files_(groups_, head_counts(config), config.windows(), attention_, cache_, compute,
                other_stages(config, settings)),
      states_(make_states(config, groups_.place, settings, compute.device)),
      snapshots_(states_ ? std::make_unique<recurrence::StateSnapshots>(
                               *states_, attention_.ledger(), compute_)
                         : nullptr),
      parking_(attention_.ledger(), cache_, compute_, settings.parking, snapshots_.get()),
      state_files_(snapshots_ ? std::make_unique<recurrence::StateFiles>(
                                    model::RecurrentMixer::state_part(
                                        config, groups_.place,
                                        groups_.stage * groups_.cp + groups_.cp_index),
                                    *snapshots_, compute_)
                              : nullptr),
      model_(config, weights, groups_, compute, row_invariant(settings), states_.get()),
      pass_runner_({groups_.cp_index, groups_.cp, config.vocab, settings.logprobs,
                    settings.prompt_logprobs, settings.layout_invariant, settings.grammars},
                   transfers(tensors_, ranks), model_, attention_, kv_files_, snapshots_.get(),
                   state_files_.get(), parking_, compute_) {
  attention_.copies().set_beside(snapshots_.get());
  if (config.attention_sinks) {
    std::vector<TensorView> sinks;
    for (const model::LayerWeights& layer : weights.layers) sinks.push_back(layer.attention.sinks);
    attention_.set_sink_logits(sinks);
  }
  if (ranks.size() == 1) return;
  move_transfers_ = [this, &ranks = transfers(tensors_, ranks)] {
    if (!ranks.progress()) return;
    model_.progress();
    // On a GPU the stream may be in the middle of a step.
    if (!compute_.device.info().is_gpu()) progress();
  };
  compute_.stream.set_poll(move_transfers_);
}

parallel::WeightCut Replica::weight_cut(int rank, int sp, int tp, int ep,
                                        parallel::Sharding sharding) {
  const int in_block = rank % (sp * tp);
  return parallel::weight_cut(sharding, {sp, tp, in_block / tp, in_block % tp, ep});
}

void Replica::while_computing(std::function<void()> poll) {
  compute_.stream.set_poll([this, poll = std::move(poll)] {
    move_transfers_();
    poll();
  });
}

Replica::~Replica() {
  compute_.stream.set_poll({});
}

}  // namespace pecia::execute
