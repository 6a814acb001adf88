// SPDX-License-Identifier: Apache-2.0
#include "lib/run/load_weights.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "lib/base/report/format.hpp"
#include "lib/engine/execute/replica.hpp"
#include "lib/ranks/cluster/machine.hpp"
#include "lib/ranks/comm/agree.hpp"
#include "lib/run/spread_files.hpp"

namespace pecia::run {

namespace {

/// With model.load: spread, the checkpoint's files in memory. Collective.
std::optional<SpreadFiles> spread_files(const Setup& setup, const Hosts& hosts) {
  std::optional<SpreadFiles> spread;
  if (setup.job.model.load != job::Load::spread) return spread;
  comm::Communicator& world = setup.world();
  std::vector<std::filesystem::path> files;
  comm::together(world, [&] {
    if (world.rank() == 0) files = io::checkpoint_files(setup.job.model.path);
  });
  const auto begin = std::chrono::steady_clock::now();
  spread.emplace(hosts, files);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  const std::vector<int64_t> read = hosts.of_each(spread->read_bytes());
  setup.log->info("weights: {} host{} read {} once, at most {} each, in {:.1f} s", read.size(),
                  read.size() == 1 ? "" : "s",
                  report::format_bytes(std::accumulate(read.begin(), read.end(), int64_t{0})),
                  report::format_bytes(*std::ranges::max_element(read)), elapsed.count());
  return spread;
}

model::Weights read_weights(const Setup& setup, const Hosts& hosts,
                            const std::optional<SpreadFiles>& spread) {
  const job::Job& job = setup.job;
  std::optional<model::Weights> weights;
  device::ThreadPool pool(setup.resources.threads.count);
  const resources::Resources& resources = setup.resources;
  const parallel::WeightCut cut = execute::Replica::weight_cut(
      setup.ranks.replica->rank(), resources.sp, resources.tp, resources.ep);
  comm::together(setup.world(), [&] {
    std::optional<DType> resident;  // absent: as stored; rounding to codes comes later
    if (job.model.dtype && resources::quantize_of(job) == model::Quantize::nothing)
      resident = resources::dtype_of(*job.model.dtype);
    const auto place = [&](const std::filesystem::path& file) {
      return spread ? spread->in_memory(file) : file;
    };
    weights.emplace(setup.config, io::Checkpoint(job.model.path, place), resident, cut, pool,
                    resources::code_use(setup.job, setup.config, setup.resources),
                    setup.stage.stage);
  });
  const auto of_stage = hosts.ranks->split(setup.ranks.stage, hosts.ranks->rank());
  comm::together(setup.world(),
                 [&] { weights->check_finite(of_stage->rank(), of_stage->size(), pool); });
  return std::move(*weights);
}

std::optional<model::DeviceWeights> copied(const Setup& setup, const model::Weights& weights) {
  const resources::ComputePlace& place = setup.place;
  std::optional<model::DeviceWeights> there;
  const model::Quantize quantize = resources::quantize_of(setup.job);
  const bool replicate = setup.job.model.replicate && weights.converted_bytes() == 0;
  if (!place.on_gpu() && quantize == model::Quantize::nothing && !replicate) return there;
  comm::Communicator& world = setup.world();
  const int64_t room =
      place.on_gpu() ? place.device->memory().free_bytes : resources::free_host_bytes(world);
  comm::together(world, [&] {
    resources::require_room(weights, quantize, room, place.on_gpu());
    there.emplace(weights, *place.device, *place.stream, *place.backend, quantize);
  });
  const auto bytes = world.all_reduce_sum(static_cast<double>(there->bytes()));
  const auto ms = world.all_reduce_max(static_cast<int64_t>(1e3 * there->seconds()) + 1);
  setup.log->info("weights {}: {} in {:.1f} s, {:.1f} GB/s",
                  place.on_gpu() ? "on the GPUs" : "of all ranks",
                  report::format_bytes(static_cast<int64_t>(bytes)), 1e-3 * static_cast<double>(ms),
                  bytes / static_cast<double>(ms) * 1e-6);
  return there;
}

/// Why the weights are not packed, though the job asks for it; "" if they can be.
std::string why_not_packed(const Setup& setup, const LoadedWeights& weights, int64_t bytes) {
  if (setup.job.model.replicate) return "with model.replicate ranks do not share weights";
  if (bytes == 0)
    return fmt::format("weights of {} have none on this backend", name_of(weights.held()));
  return "";
}

/// Panels of both layouts where steps may be shifted and the host has room. All ranks or none.
/// Collective.
void pack_for_shift(const Setup& setup, const Hosts& hosts, LoadedWeights& weights) {
  const resources::Resources& resources = setup.resources;
  if (resources.decode != parallel::DecodeMode::shift) return;
  const parallel::WeightCut cut =
      execute::Replica::weight_cut(setup.ranks.replica->rank(), resources.sp, resources.tp,
                                   resources.ep, parallel::Sharding::shift);
  kernels::Backend& backend = *setup.place.backend;
  const auto matrices = model::ShiftPanels::matrices_of(weights.views(), setup.stage, cut, backend);
  const auto of_rank = static_cast<double>(model::ShiftPanels::bytes_of(matrices, backend));
  const auto room = 0.5 * static_cast<double>(cluster::memory_facts().available_bytes);
  const bool fits = hosts.ranks->all_reduce_sum(of_rank) <= room;
  comm::Communicator& world = setup.world();
  if (world.all_reduce_max(fits && of_rank > 0 ? 0 : 1) > 0) return;
  comm::together(world, [&] {
    weights.shift_panels =
        std::make_unique<model::ShiftPanels>(matrices, backend, *setup.place.stream);
  });
}

/// Panels of the weights where the job wants them or, with auto, where mapped weights have them and
/// the host has room. All ranks or none. Collective.
void pack(const Setup& setup, const Hosts& hosts, LoadedWeights& weights) {
  const std::optional<bool>& wanted = setup.job.model.prepack;
  if (wanted == false) return;
  comm::Communicator& world = setup.world();
  const resources::ComputePlace& place = setup.place;
  const int64_t bytes = model::panel_bytes(weights.views(), *place.backend);
  const std::string why_not = why_not_packed(setup, weights, bytes);
  comm::together(world, [&] {
    if (wanted && !why_not.empty()) fail<InputError>("model.prepack: {}; use auto", why_not);
  });
  const bool is_mapped = weights.stored.converted_bytes() == 0 && !weights.own &&
                         setup.job.model.load == job::Load::mapped;
  const auto of_stage = hosts.ranks->split(setup.ranks.stage, hosts.ranks->rank());
  const auto parts = of_stage->split(weights.views().part.index, of_stage->rank());
  const auto of_host = static_cast<double>(parts->rank() == 0 ? bytes : 0);
  const auto room = 0.5 * static_cast<double>(cluster::memory_facts().available_bytes);
  const bool fits = hosts.ranks->all_reduce_sum(of_host) <= room;
  const bool packs = wanted.value_or(why_not.empty() && is_mapped && fits);
  if (world.all_reduce_max(static_cast<int64_t>(!packs)) > 0) return;

  weights.panels = std::make_unique<model::SharedPanels>(
      *of_stage, weights.views(), *place.backend, *place.stream,
      [&] { weights.stored.checkpoint().release_pages(); });
  const auto begin = std::chrono::steady_clock::now();
  pack_for_shift(setup, hosts, weights);
  const std::chrono::duration<double> more = std::chrono::steady_clock::now() - begin;
  const model::SharedPanels& panels = *weights.panels;
  const int64_t made = (panels.is_first() ? panels.bytes() : 0) +
                       (weights.shift_panels ? weights.shift_panels->bytes() : 0);
  weights.packed_bytes = world.all_reduce_max(
      static_cast<int64_t>(hosts.ranks->all_reduce_sum(static_cast<double>(made))));
  weights.packing_s = 1e-6 * static_cast<double>(world.all_reduce_max(
                                 std::llround(1e6 * (panels.seconds() + more.count()))));
}

/// Says which matrices are wider in memory than in the checkpoint, and why.
void say_what_is_widened(const Setup& setup) {
  const model::CodeUse use = resources::code_use(setup.job, setup.config, setup.resources);
  std::map<std::string, std::vector<std::string_view>> kinds;  // by reason
  for (size_t i = 0; i < model::num_matrix_kinds; ++i) {
    const auto kind = static_cast<model::MatrixKind>(i);
    if (num_matrices(setup.config, kind) == 0) continue;
    const std::string why = why_widened(setup.config, kind, use);
    if (!why.empty()) kinds[why].push_back(role_of(kind).name);
  }
  for (const auto& [why, names] : kinds)
    setup.log->info("weights of {} are stored as {} and widened: {}", fmt::join(names, ", "),
                    setup.config.quantization->name(), why);
}

}  // namespace

void require_head(const model::WeightViews& weights, const job::Job& job) {
  if (weights.has_head()) return;
  fail<InputError>(
      "{}: tensor 'lm_head.weight' is missing, and config.json does not tie it to the embedding. "
      "Download every shard again; a model without a head gives vectors alone, with produce: "
      "vector and generation.prompt_logprobs: 0",
      job.model.path.string());
}

LoadedWeights load_weights(const Setup& setup) {
  const Hosts hosts(setup.world());
  const std::optional<SpreadFiles> spread = spread_files(setup, hosts);
  LoadedWeights weights{.stored = read_weights(setup, hosts, spread)};
  weights.read_bytes =
      hosts.of_each(spread ? spread->read_bytes() : weights.stored.checkpoint().total_bytes());
  if (setup.is_root()) say_what_is_widened(setup);
  weights.own = copied(setup, weights.stored);
  // All ranks have copies or none has. Those of the stored weights are not touched any more.
  if (weights.own && spread) spread->clear();
  pack(setup, hosts, weights);
  const DType held = weights.held();
  if (setup.job.model.compute == job::Precision::bf16 &&
      setup.place.backend->operand_type(held) != DType::bf16)
    fail<InputError>(
        "model.compute: bf16 multiplies weights of that type, and those of this model are {}; use "
        "compute: auto, or model.dtype: bf16",
        name_of(held));
  if (weights.own && weights.own->quantized() != model::Quantize::nothing) {
    weights.rounding = measure::gather_rounding(weights.own->rounding(), setup.world());
    setup.log->info("weights rounded to {}, off by {}", name_of(held), to_text(*weights.rounding));
  }
  return weights;
}

}  // namespace pecia::run
