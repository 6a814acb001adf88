// SPDX-License-Identifier: Apache-2.0
#include "lib/run/settle.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "lib/base/report/format.hpp"
#include "lib/engine/execute/rank_needs.hpp"
#include "lib/engine/schedule/job_limits.hpp"
#include "lib/ranks/comm/agree.hpp"
#include "lib/ranks/comm/of_first.hpp"
#include "lib/ranks/parallel/level_rule.hpp"

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

/// Bytes that the passes of some rank need beyond what is set aside for activations. Collective.
int64_t bytes_beyond_activations(const Setup& setup, const resources::Resources& resources,
                                 const LoadedWeights& weights) {
  const execute::RankNeeds needs = execute::needs_of_rank(
      setup.ranks.replica->rank(), setup.job, setup.config, resources,
      weights.views().embedding.dtype(), kernels::traits_of(*setup.place.backend));
  return setup.world().all_reduce_max(
      std::max<int64_t>(0, needs.work_bytes - resources::activation_bytes(true)));
}

}  // namespace

resources::Resources with_memory(const Setup& setup, resources::Resources resources,
                                 const LoadedWeights& weights, RunInputs& inputs) {
  resources::MemoryFacts facts{
      weights.views().matrix_type(), weights.views().embedding.dtype(),
      resources.gpus ? free_gpu_bytes(setup) : resources::free_host_bytes(setup.world())};
  facts.free_bytes = -setup.world().all_reduce_max(-facts.free_bytes);
  const auto settle = [&] {
    resources::Memory memory;
    comm::together(setup.world(), [&] {
      if (setup.chief())
        memory = resources::settle_memory(setup.job, setup.config, resources, facts, inputs.get());
    });
    comm::of_first(*setup.ranks.ordered, memory).write_to(resources);
  };
  settle();
  if (!resources.gpus) return resources;
  const int64_t beyond = bytes_beyond_activations(setup, resources, weights);
  if (beyond == 0) return resources;
  facts.free_bytes = std::max<int64_t>(0, facts.free_bytes - beyond);
  settle();
  return resources;
}

parallel::RingRates settle_rates(const Setup& setup, comm::Communicator& tensors,
                                 const attention::Compute& compute) {
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
      again = tune::settle_tuned_again(*setup.tuned, rates, setup.job, resources);
    });
    if (again)  // passes that drop less need more memory
      resources = with_memory(setup, resources, weights, inputs);
    return;
  }
  if (!resources.levels_from() || resources.sparse->micro) return;
  parallel::RingInputs in;
  in.ranks = resources.cp;
  in.shape = schedule::ring_shape(setup.config, resources);
  in.rates = rates;
  in.load.add(resources.max_batch_tokens, 0);
  const auto levels = tune::levels_by_place(resources.level_places(setup.ranks.replica_places()))(
      resources.sparse->levels);
  resources.sparse->micro = parallel::best_micro(in, levels, resources.sparse->rule);
  resources.reasons.add(fmt::format(
      "levels in {} part{}: by the link's {}B/s beside {}FLOP/s", *resources.sparse->micro,
      *resources.sparse->micro == 1 ? "" : "s", report::format_count(rates.all_to_all_bandwidth),
      report::format_count(rates.flops)));
}

measure::Measured settle_choices(Setup& setup, const parallel::RingRates& rates,
                                 execute::Replica& replica) {
  const auto known = measure::parse_measured(setup.kept, setup.resources);
  const auto sent = [&] {
    return execute::sent_per_token(setup.config, setup.resources.sp, setup.resources.tp,
                                   setup.resources.ep);
  };
  measure::Measured measured =
      known ? *known
            : measure::measure_choices(setup.job, setup.config, setup.resources, sent, rates,
                                       setup.world(), *replica.groups().block, replica.compute());
  if (setup.layout.layout) measured.layout = setup.layout.layout->to_settings();
  setup.resources.shift_threshold = measured.shift_threshold;
  if (!setup.resources.gpus) measured.products = measure::products_text(setup.products.products);
  return measured;
}

}  // namespace pecia::run
