// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/support/replica.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "lib/base/core/random.hpp"
#include "lib/engine/execute/rank_needs.hpp"
#include "lib/ranks/comm/agree.hpp"
#include "lib/ranks/parallel/ring.hpp"
#include "lib/ranks/parallel/virtual_ranks.hpp"
#include "lib/settle/measure/calibration.hpp"
#include "lib/settle/measure/product_choice.hpp"
#include "lib/work/resources/resources.hpp"

namespace pecia::bench {

using parallel::AttentionExchange;
using parallel::PassSequence;
using report::Kind;
using report::ScopedSpan;
using schedule::NewSequence;

std::unique_ptr<LoadedModel> load_model(comm::Communicator& world,
                                        const std::filesystem::path& folder,
                                        std::optional<DType> dtype) {
  std::unique_ptr<LoadedModel> model;
  comm::together(world, [&] {
    model::ModelConfig config = model::read_config(folder);
    model::Weights weights(config, io::Checkpoint(folder), dtype);
    model = std::make_unique<LoadedModel>(
        LoadedModel{folder, std::move(config), dtype, std::move(weights)});
  });
  return model;
}

namespace {

model::CodeUse codes_used(const model::ModelConfig& config, const ReplicaSettings& settings) {
  const resources::Resources& of = settings.resources;
  return resources::code_use(settings.job, config, of.sp * of.tp, of.ep, of.gpus);
}

/// Absent where the rank has the model's weights as they were loaded.
std::optional<model::Weights> cut_weights(const LoadedModel& model, int rank,
                                          const ReplicaSettings& settings) {
  const resources::Resources& of = settings.resources;
  const model::CodeUse codes = codes_used(model.config, settings);
  const bool as_loaded = !model.config.quantization || codes == model::CodeUse{};
  if (of.tp == 1 && of.ep == 1 && as_loaded) return {};
  return std::optional<model::Weights>(
      std::in_place, model.config, io::Checkpoint(model.folder), model.dtype,
      execute::Replica::weight_cut(rank, of.sp, of.tp, of.ep), codes);
}

std::optional<model::DeviceWeights> copied(const model::WeightViews& weights, const job::Job& job,
                                           const resources::ComputePlace& place) {
  const model::Quantize quantize = resources::quantize_of(job);
  if (!place.on_gpu() && quantize == model::Quantize::nothing) return {};
  return std::optional<model::DeviceWeights>(std::in_place, weights, *place.device, *place.stream,
                                             *place.backend, quantize);
}

/// As a run packs, whatever room there is.
std::unique_ptr<model::SharedPanels> packed(const model::WeightViews& weights, const job::Job& job,
                                            const resources::ComputePlace& place,
                                            comm::Communicator& ring) {
  const int64_t bytes = model::panel_bytes(weights, *place.backend);
  const auto host = ring.split_by_host();
  if (job.model.prepack == false || ring.all_reduce_max(bytes) == 0) return nullptr;
  return std::make_unique<model::SharedPanels>(*host, weights, *place.backend, *place.stream);
}

/// Where steps may be shifted.
std::unique_ptr<model::ShiftPanels> packed_for_shift(const model::WeightViews& weights,
                                                     const model::ModelConfig& config,
                                                     const ReplicaSettings& settings,
                                                     const resources::ComputePlace& place,
                                                     const comm::Communicator& ring) {
  const resources::Resources& of = settings.resources;
  if (of.decode != parallel::DecodeMode::shift) return nullptr;
  const parallel::WeightCut cut =
      execute::Replica::weight_cut(ring.rank(), of.sp, of.tp, of.ep, parallel::Sharding::shift);
  return std::make_unique<model::ShiftPanels>(
      model::ShiftPanels::matrices_of(weights, config, cut, *place.backend), *place.backend,
      *place.stream);
}

/// As a run's, but sequences are filled without a pass: then their states may be any.
execute::Replica::Settings rank_settings(const ReplicaSettings& settings) {
  execute::Replica::Settings of = execute::Replica::settings_of(settings.job, settings.resources);
  of.states_may_be_any = of.states > 0;
  return of;
}

execute::PhantomSettings phantom_settings(const ReplicaSettings& settings,
                                          const comm::Communicator& ring, DType weights,
                                          const kernels::BackendTraits& traits) {
  return {.ranks = ring.size(),
          .rank = ring.rank(),
          .weights = weights,
          .quantize = resources::quantize_of(settings.job),
          .memory_bytes = std::numeric_limits<int64_t>::max(),
          .traits = traits,
          .replica = rank_settings(settings)};
}

}  // namespace

resources::ComputePlace make_place(const ReplicaSettings& settings, const LoadedModel& model,
                                   comm::Communicator& ring) {
  const bool gpus = settings.resources.gpus;
  const resources::Threads& threads = settings.resources.threads;
  std::optional<kernels::CpuProducts> products;
  if (!gpus)
    products = measure::choose_products(
                   settings.job, resources::held_dtype(settings.job, model.config), threads, ring)
                   .products;
  return resources::make_compute_place(settings.job, gpus, threads, ring, products);
}

const model::WeightViews& Replica::stored_weights() const {
  return cut_ ? *cut_ : model_.weights;
}

const model::WeightViews& Replica::weights() const {
  return own_ ? *own_ : stored_weights();
}

Replica::Replica(comm::Communicator& ring, const LoadedModel& model,
                 const ReplicaSettings& settings)
    : ring_(ring),
      model_(model),
      settings_(settings),
      cut_(cut_weights(model, ring.rank(), settings)),
      place_(make_place(settings, model, ring)),
      own_(copied(stored_weights(), settings.job, place_)),
      panels_(packed(weights(), settings.job, place_, ring)),
      shift_panels_(panels_ ? packed_for_shift(weights(), model.config, settings, place_, ring)
                            : nullptr),
      rank_(ring, resources::tensor_group(settings.job, ring, place_), model.config, weights(),
            {*place_.device, *place_.stream, *place_.backend, recorder_}, rank_settings(settings)),
      phantom_(model.config, phantom_settings(settings, ring, stored_weights().matrix_type(),
                                              kernels::traits_of(*place_.backend))) {}

int ReplicaSettings::virtual_ranks() const {
  return job.reproducible == parallel::Reproducible::layout ? parallel::layout_ranks : 0;
}

void ReplicaSettings::make_room_for_states(const model::ModelConfig& config, int64_t sequences) {
  resources.states = config.recurrent ? sequences + 1 : 0;
}

ReplicaSettings ReplicaSettings::of_one_rank() const {
  ReplicaSettings alone = *this;
  resources::Resources& of = alone.resources;
  of.cp = of.sp = of.tp = of.ep = 1;
  alone.sharding = parallel::Sharding::base;
  alone.masters = 0;
  return alone;
}

int64_t Replica::slots(const ReplicaSettings& settings, int64_t tokens, int64_t steps) {
  const int ranks = settings.resources.cp;  // that share the tokens
  if (const int players = settings.virtual_ranks(); players > 0) {
    ReplicaSettings of_player = settings;
    of_player.job.reproducible = parallel::Reproducible::run;
    of_player.resources.cp = players;
    return players / ranks * slots(of_player, tokens, steps);
  }
  const int masters = settings.masters > 0 ? settings.masters : ranks;
  const int64_t chunk = settings.resources.max_batch_tokens;
  return tokens / chunk * parallel::max_owned_tokens(chunk, ranks) +
         parallel::max_owned_tokens(tokens % chunk, ranks) + (steps + masters - 1) / masters;
}

std::vector<int64_t> Replica::on_each(int64_t slots) const {
  return std::vector<int64_t>(rank_.groups().cp, slots);
}

/// Tells the ranks of a sequence whose prompt has `length` tokens.
void Replica::begin(SequenceId sequence, int64_t length) {
  added_.push_back(
      {sequence, {NewSequence::no_parent, 0, on_each(slots(settings_, length, 0)), {}}});
  started_.push_back({sequence, {}, 0, length});
}

Answer Replica::prefill(SequenceId sequence, std::span<const int32_t> tokens) {
  begin(sequence, static_cast<int64_t>(tokens.size()));
  return feed(sequence, 0, tokens);
}

Answer Replica::extend(SequenceId sequence, std::span<const int32_t> tokens) {
  return feed(sequence, rank_.attention().ledger().map().length(sequence), tokens);
}

/// Part of a prompt, whose end is not set.
schedule::PlanItem Replica::chunk(SequenceId sequence, int64_t first,
                                  std::span<const int32_t> tokens) const {
  const int32_t owner = settings_.prefill_ring == AttentionExchange::levels
                            ? PassSequence::contiguous
                            : PassSequence::balanced;
  schedule::PlanItem item;
  item.rows = {sequence, first, static_cast<int64_t>(tokens.size()), owner,
               settings_.virtual_ranks()};
  item.tokens.assign(tokens.begin(), tokens.end());
  return item;
}

Answer Replica::feed(SequenceId sequence, int64_t cached, std::span<const int32_t> tokens) {
  const auto length = static_cast<int64_t>(tokens.size());
  Answer answer;
  for (int64_t first = 0; first < length; first += settings_.resources.max_batch_tokens) {
    const int64_t count = std::min(settings_.resources.max_batch_tokens, length - first);
    schedule::Plan plan = next_plan(settings_.prefill_ring);
    schedule::PlanItem item = chunk(sequence, cached + first, tokens.subspan(first, count));
    item.prompt_end = cached + length;
    item.sampled_index = first + count == length ? 0 : -1;
    plan.items.push_back(std::move(item));
    answer = execute(plan);
  }
  return answer;
}

namespace {
/// Rows of random numbers to copy from, starting anywhere.
class RandomRows {
 public:
  RandomRows(DType dtype, int64_t head_dim)
      : row_bytes_(head_dim * size_of(dtype)), element_bytes_(size_of(dtype)) {
    values_.reserve((starts + head_dim) * element_bytes_);
    for (int64_t i = 0; i < starts + head_dim; ++i)
      store_from_float(values_.data(), dtype, i,
                       static_cast<float>(2 * uniform(0, static_cast<uint64_t>(i)) - 1));
  }
  void copy(uint64_t key, void* to) const {
    std::memcpy(to, values_.as<std::byte>() + static_cast<int64_t>(key % starts) * element_bytes_,
                row_bytes_);
  }

 private:
  static constexpr int64_t starts = 8191;
  int64_t row_bytes_, element_bytes_;
  device::Buffer values_;
};
}  // namespace

/// Fills all slots with random numbers once. They repeat, since the host has to write them.
void Replica::fill_cache() {
  if (std::exchange(cache_is_filled_, true)) return;
  constexpr int64_t rows = 4096;
  for (int64_t layer = 0; layer < model_.config.layers; ++layer) {
    if (!rank_.cache().is_stored(layer)) continue;
    const int64_t head_dim = rank_.cache().shape(layer).head_dim;
    const RandomRows random(settings_.resources.kv_dtype, head_dim);
    device::Buffer block;
    const TensorView values = block.tensor(settings_.resources.kv_dtype, {rows, head_dim});
    for (int64_t row = 0; row < rows; ++row)
      random.copy(mix(settings_.resources.max_batch_tokens, static_cast<uint64_t>(row)),
                  values.row(row));
    for (const auto& cached : rank_.cache().stored(layer)) {
      fill_scales(cached.scales);
      const TensorView& vectors = cached.vectors;
      const TensorView slots = vectors.reshape({vectors.rows() * vectors.size(1), vectors.size(2)});
      for (int64_t slot = 0; slot < slots.rows(); slot += rows) {
        const int64_t count = std::min(rows, slots.rows() - slot);
        compute().copy(values.slice_rows(0, count), slots.slice_rows(slot, count));
      }
    }
    compute().stream.synchronize();
  }
  compute().stream.synchronize();
}

/// Fills all slots with ones, as the random numbers are codes. Does nothing without scales.
void Replica::fill_scales(const TensorView& scales) {
  if (!scales) return;
  const std::vector<float> ones(scales.elements(), 1.0f);
  compute().device.copy(scales.data(), ones.data(), scales.elements() * size_of(scales.dtype()),
                        compute().stream);
  compute().stream.synchronize();
}

void Replica::fill(SequenceId sequence, int64_t tokens, int64_t later, uint64_t seed) {
  release_removed();
  const auto on_both = [&](std::function<void(execute::Replica&)> act) {
    act(rank_);
    of_phantom_.push_back(std::move(act));
  };
  const int64_t reserved = slots(settings_, tokens, later);
  on_both([=, this](execute::Replica& rank) {
    rank.attention().ledger().add(sequence, on_each(reserved));
  });
  started_.push_back({sequence, {}, 0, tokens});
  if (place_.on_gpu()) fill_cache();
  for (int64_t first = 0; first < tokens; first += settings_.resources.max_batch_tokens) {
    const PassSequence chunk{sequence, first,
                             std::min(settings_.resources.max_batch_tokens, tokens - first),
                             PassSequence::balanced, settings_.virtual_ranks()};
    on_both([=](execute::Replica& rank) {
      rank.attention().begin_pass({{parallel::team_of_all(rank.groups().cp), {chunk}}}, 0);
    });
    if (place_.on_gpu()) continue;
    const std::vector<int64_t>& slots = rank_.attention().slots();
    const std::vector<int64_t>& positions = rank_.attention().positions();
    for (int64_t layer = 0; layer < model_.config.layers; ++layer) {
      if (!rank_.cache().is_stored(layer)) continue;
      const auto [kv_heads, head_dim] = model_.config.heads(layer);
      const RandomRows rows(settings_.resources.kv_dtype, head_dim);
      const int64_t first_head =
          attention::Attention::held_heads(rank_.groups().place, model_.config.num_heads, kv_heads)
              .kv.begin;
      for (int64_t tensor = 0; tensor < std::ssize(rank_.cache().stored(layer)); ++tensor)
        for (int64_t head = 0; head < rank_.cache().shape(layer).num_kv_heads; ++head) {
          const attention::KvCache::Stored stored = rank_.cache().stored(layer)[tensor];
          const TensorView& cached = stored.vectors;
          const TensorView of_head(cached.row(head), cached.dtype(),
                                   {cached.size(1), cached.size(2)});
          const int64_t whole = first_head + head;
          const int64_t which = 2 * (layer * kv_heads + whole) + tensor;
          const uint64_t key =
              mix(mix(seed, static_cast<uint64_t>(sequence)), static_cast<uint64_t>(which));
          for (size_t i = 0; i < positions.size(); ++i) {
            const int64_t slot = slots[i];
            rows.copy(mix(key, static_cast<uint64_t>(positions[i])), of_head.row(slot));
            if (stored.scales) static_cast<float*>(stored.scales.row(head))[slot] = 1;
          }
        }
    }
  }
}

/// Adds a row of each sequence, dealt out over the first `masters` instances.
void Replica::add_steps(schedule::Plan& plan, std::span<const SequenceId> sequences,
                        std::span<const int32_t> tokens, int masters) const {
  for (size_t i = 0; i < sequences.size(); ++i) {
    const int64_t length = rank_.attention().ledger().map().length(sequences[i]);
    const auto turn = static_cast<int64_t>(i);
    const int32_t owner = settings_.virtual_ranks() > 0
                              ? parallel::generated_owner(length, turn)
                              : static_cast<int32_t>((turn + plan.number) % masters);
    const int32_t token = ring_.rank() == 0 ? tokens[i] : 0;
    plan.items.push_back({PassSequence{sequences[i], length, 1, owner, settings_.virtual_ranks()},
                          {token},
                          length + 1,
                          0});
  }
}

Answer Replica::decode(std::span<const SequenceId> sequences, std::span<const int32_t> tokens) {
  const int cp = rank_.groups().cp;
  const int masters = settings_.masters > 0 ? settings_.masters : cp;
  schedule::Plan plan = next_plan(cp > 1 ? settings_.decode_ring : AttentionExchange::pass_kv);
  plan.teams.front().holders = cp - masters;
  add_steps(plan, sequences, tokens, masters);
  return execute(plan);
}

Answer Replica::step_and_prefill(std::span<const SequenceId> sequences,
                                 std::span<const int32_t> tokens, std::span<const Prompt> prompts) {
  for (const Prompt& prompt : prompts) begin(prompt.sequence, std::ssize(prompt.tokens));
  schedule::Plan plan = next_plan(settings_.prefill_ring);
  add_steps(plan, sequences, tokens, rank_.groups().cp);
  for (const Prompt& prompt : prompts) {
    schedule::PlanItem item = chunk(prompt.sequence, 0, prompt.tokens);
    item.prompt_end = std::ssize(prompt.tokens);
    item.sampled_index = 0;
    plan.items.push_back(std::move(item));
  }
  return execute(plan);
}

parallel::RingRates Replica::measure_rates() {
  return measure::measure_rates(
      ring_, *rank_.groups().ring, compute(),
      measure::attention_shape(model_.config, settings_.resources.degrees(),
                               rank_.cache().shape().dtype));
}

int64_t Replica::measure_shift_threshold(int64_t limit) {
  const int sp = settings_.resources.sp, tp = settings_.resources.tp;
  const parallel::SentPerToken sent =
      execute::sent_per_token(model_.config, sp, tp, settings_.resources.ep, rank_.groups().wire);
  return parallel::shift_threshold(
      measure::measure_shift_inputs(model_.config, weights().matrix_type(),
                                    codes_used(model_.config, settings_), sp, tp, sent, ring_,
                                    *rank_.groups().block, compute()),
      limit);
}

const execute::SentBytes& Replica::expected() {
  for (const auto& act : std::exchange(of_phantom_, {})) act(phantom_.replica());
  return phantom_.sent();
}

void Replica::remove(SequenceId sequence) {
  removed_.push_back(sequence);
}

void Replica::release_removed() {
  if (removed_.empty()) return;
  execute(next_plan(AttentionExchange::pass_kv));
}

schedule::Plan Replica::next_plan(AttentionExchange ring) {
  schedule::Plan plan;
  plan.number = next_number_++;
  plan.teams = {parallel::team_of_all(rank_.groups().cp, ring, settings_.sharding)};
  plan.removed = std::exchange(removed_, {});
  plan.added = std::exchange(added_, {});
  plan.turns = std::exchange(started_, {});
  return plan;
}

Answer Replica::execute(const schedule::Plan& plan) {
  constexpr int root = 0;
  std::vector<std::byte> bytes;
  if (ring_.rank() == root) bytes = to_bytes(plan);
  {
    const ScopedSpan span(recorder_, "wait_for_plan", Kind::idle);
    ring_.broadcast(bytes, root);
  }
  auto agreed = from_bytes<schedule::Plan>(bytes);
  const schedule::Outcome outcome = rank_.execute(agreed);
  of_phantom_.push_back(
      [agreed = std::move(agreed)](execute::Replica& phantom) { phantom.execute(agreed); });
  std::vector<std::vector<std::byte>> gathered;
  {
    const ScopedSpan span(recorder_, "gather_outcomes", Kind::comm);
    gathered = ring_.gather(to_bytes(outcome), root);
  }
  Answer answer;
  if (ring_.rank() != root) return answer;
  const int64_t width = settings_.job.generation.logprobs < 0 ? model_.config.vocab : 0;
  answer.tokens.resize(plan.items.size());
  answer.logprobs.resize(plan.items.size() * width);
  for (const auto& part : gathered) {
    const auto sampled = from_bytes<schedule::Outcome>(part).sampled;
    for (size_t i = 0; i < sampled.which.size(); ++i) {
      answer.tokens[sampled.which[i]] = sampled.tokens[i];
      std::copy_n(sampled.top_logprobs.begin() + static_cast<int64_t>(i) * width, width,
                  answer.logprobs.begin() + sampled.which[i] * width);
    }
  }
  return answer;
}

std::vector<int32_t> random_tokens(int64_t count, int64_t vocab, uint64_t seed) {
  std::vector<int32_t> tokens(count);
  for (int64_t i = 0; i < count; ++i)
    tokens[i] =
        static_cast<int32_t>(uniform(seed, static_cast<uint64_t>(i)) * static_cast<double>(vocab));
  return tokens;
}

}  // namespace pecia::bench
