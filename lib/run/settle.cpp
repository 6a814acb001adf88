// SPDX-License-Identifier: Apache-2.0
#include "lib/run/settle.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "lib/comm/agree.hpp"
#include "lib/execute/rank_needs.hpp"
#include "lib/parallel/level_rule.hpp"
#include "lib/report/format.hpp"
#include "lib/run/scheduler_limits.hpp"

namespace pecia::run {
namespace {

/// Free bytes of the GPU for this rank, after the activations of a pass. Where ranks may share a
/// GPU, the bytes are divided among all ranks of the host. Collective.
int64_t free_gpu_bytes(const Setup& setup) {
  comm::Communicator& world = setup.world();
  const int sharing = setup.job.allow_gpu_sharing ? world.split_by_host()->size() : 1;
  world.barrier();  // after this, all weights are loaded
  return std::max<int64_t>(
      0, setup.place.device->memory().free_bytes / sharing - resources::activation_bytes(true));
}

/// Shrinks the KV cache where passes need more memory than was set aside for activations.
/// Collective.
void make_room_for_passes(Setup& setup, const LoadedWeights& weights, RunInputs& inputs,
                          int64_t free_bytes) {
  const execute::RankNeeds needs = execute::needs_of_rank(
      setup.ranks.replica->rank(), setup.job, setup.config, setup.resources,
      weights.views().embedding.dtype(), kernels::traits_of(*setup.place.backend));
  const int64_t beyond = setup.world().all_reduce_max(
      std::max<int64_t>(0, needs.work_bytes - resources::activation_bytes(true)));
  if (beyond == 0) return;
  resources::resolve_kv_slots(setup.job, setup.config, inputs.get(), setup.resources,
                              std::max<int64_t>(0, free_bytes - beyond), setup.world())
      .write_to(setup.resources);
}

}  // namespace

void settle_memory(Setup& setup, const LoadedWeights& weights, RunInputs& inputs) {
  const int64_t free_bytes =
      setup.resources.gpus ? free_gpu_bytes(setup) : resources::free_host_bytes(setup.world());
  resources::resolve_memory(setup.job, setup.config, weights.views(), inputs.get(), free_bytes,
                            setup.resources, setup.world());
  if (setup.resources.gpus) make_room_for_passes(setup, weights, inputs, free_bytes);
}

parallel::RingRates settle_rates(const Setup& setup, comm::Communicator& tensors,
                                 const context::Compute& compute) {
  const auto known = measure::parse_measured(setup.kept, setup.resources);
  return known ? known->ring
               : measure::measure_ring(setup.config, setup.resources, setup.world(), tensors,
                                       compute, *setup.log);
}

void settle_levels(Setup& setup, const LoadedWeights& weights, RunInputs& inputs,
                   const parallel::RingRates& rates) {
  resources::Resources& resources = setup.resources;
  if (setup.tuned) {
    bool again = false;
    comm::together(setup.world(), [&] {
      again = resources::settle_tuned_again(*setup.tuned, rates, setup.job, resources);
    });
    if (again) settle_memory(setup, weights, inputs);  // passes that drop less need more of it
    return;
  }
  if (!resources.levels_from() || resources.sparse->micro) return;
  parallel::RingInputs in;
  in.ranks = resources.cp;
  in.shape = ring_shape(setup.config, resources);
  in.rates = rates;
  in.load.add(resources.max_batch_tokens, 0);
  const auto levels = resources::levels_by_place(
      resources.level_places(setup.ranks.replica_places()))(resources.sparse->levels);
  resources.sparse->micro = parallel::best_micro(in, levels, resources.sparse->rule);
  resources.why += fmt::format("{}levels in {} part{}: by the link's {}B/s beside {}FLOP/s",
                               resources.why.empty() ? "" : "; ", *resources.sparse->micro,
                               *resources.sparse->micro == 1 ? "" : "s",
                               report::format_count(rates.all_to_all_bandwidth),
                               report::format_count(rates.flops));
}

measure::Measured settle_choices(Setup& setup, const parallel::RingRates& rates,
                                 execute::ReplicaRank& rank) {
  const auto known = measure::parse_measured(setup.kept, setup.resources);
  const auto sent = [&] {
    return execute::sent_per_token(setup.config, setup.resources.sp, setup.resources.tp,
                                   setup.resources.ep);
  };
  measure::Measured measured =
      known
          ? *known
          : measure::measure_choices(setup.job, setup.config, setup.resources, sent, rates,
                                     setup.world(), *rank.worker().groups().block, rank.compute());
  measured.layout = setup.layout.settings;
  setup.resources.shift_threshold = measured.shift_threshold;
  if (!setup.resources.gpus) measured.products = measure::products_text(setup.products.products);
  return measured;
}

}  // namespace pecia::run
