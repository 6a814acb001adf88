// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/memory.hpp"

#include <algorithm>

#include "lib/engine/execute/rank_needs.hpp"
#include "lib/ranks/comm/agree.hpp"
#include "lib/ranks/comm/of_first.hpp"

namespace pecia::settle {
namespace {

/// Free bytes of the GPU for this rank, after the activations of a pass. Where ranks may share a
/// GPU, the bytes are divided among all ranks of the host. Collective.
int64_t free_gpu_bytes(const Facts& facts, bool shared) {
  comm::Communicator& world = facts.ranks.world;
  const int sharing = shared ? world.split_by_host()->size() : 1;
  world.barrier();  // after this, all weights are loaded
  return std::max<int64_t>(
      0, facts.place.device->memory().free_bytes / sharing - resources::activation_bytes(true));
}

/// Bytes that the passes of some rank need beyond what is set aside for activations. Collective.
int64_t bytes_beyond_activations(const Facts& facts, const job::Job& job,
                                 const resources::Resources& resources) {
  const execute::RankNeeds needs =
      execute::needs_of_rank(facts.ranks.replica->rank(), job, facts.config, resources,
                             facts.embedding, kernels::traits_of(*facts.place.backend));
  return facts.ranks.world.all_reduce_max(
      std::max<int64_t>(0, needs.work_bytes - resources::activation_bytes(true)));
}

/// The type of the products' operands, if it is the same on all ranks; else fp32. Collective.
DType operands_of_all(const Facts& facts) {
  const DType own = facts.place.backend->operand_type(facts.matrices);
  const int64_t most = facts.ranks.world.all_reduce_max(static_cast<int64_t>(own));
  const int64_t least = -facts.ranks.world.all_reduce_max(-static_cast<int64_t>(own));
  return most == least ? own : DType::fp32;
}

}  // namespace

resources::Resources with_memory(const Facts& facts, const job::Job& job,
                                 resources::Resources resources) {
  comm::Communicator& world = facts.ranks.world;
  resources.wire = resources::wire_of(job, operands_of_all(facts));
  int64_t free_bytes = resources.gpus
                           ? free_gpu_bytes(facts, job.gpu_sharing != job::GpuSharing::no)
                           : resources::free_host_bytes(world);
  free_bytes = -world.all_reduce_max(-free_bytes);
  const auto settle = [&] {
    resources::Memory memory;
    comm::together(world, [&] {
      if (facts.ranks.is_root())
        memory =
            resources::settle_memory(job, facts.config, resources,
                                     {facts.matrices, facts.embedding, free_bytes}, facts.inputs);
    });
    comm::of_first(*facts.ranks.ordered, memory).write_to(resources);
  };
  settle();
  if (!resources.gpus) return resources;
  const int64_t beyond = bytes_beyond_activations(facts, job, resources);
  if (beyond == 0) return resources;
  free_bytes = std::max<int64_t>(0, free_bytes - beyond);
  settle();
  return resources;
}

}  // namespace pecia::settle
