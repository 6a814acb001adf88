// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/this_cluster.hpp"

#include <cmath>

#include "lib/base/report/memory.hpp"
#include "lib/engine/execute/step_time.hpp"
#include "lib/ranks/cluster/machine.hpp"
#include "lib/ranks/comm/agree.hpp"
#include "lib/settle/measure/described_cluster.hpp"
#include "lib/settle/measure/kept_cluster.hpp"
#include "lib/settle/measure/rates_by_size.hpp"
#include "lib/settle/measure/ring_times.hpp"
#include "lib/simulation/replica_program.hpp"

namespace pecia::settle {

std::optional<MeasuredRing> measure_ring_rule(comm::Communicator& world, comm::Communicator& ring,
                                              const job::Job& job, const model::ModelConfig& config,
                                              const resources::Resources& resources,
                                              const resources::ComputePlace& place) {
  const measure::AttentionShape heads =
      measure::attention_shape(config, resources.degrees(), resources.kv_dtype);
  if (heads.values_in_keys > 0) return {};
  report::Recorder recorder;
  const attention::Compute compute{*place.device, *place.stream, *place.backend, recorder};
  const DType wire =
      resources::wire_of(job, place.backend->operand_type(resources::held_dtype(job, config)));
  MeasuredRing measured{simulation::ring_of(config, resources),
                        measure::measure_ring_times(world, ring, compute, heads, wire)};
  const parallel::FittedRule rule = parallel::fit_rule(measured.times);
  measured.rule.rule = {measure::rounded(rule.new_tokens), measure::rounded(rule.miss_rate),
                        measure::rounded(rule.constant)};
  return measured;
}

cluster_files::Cluster measure_this_cluster(
    comm::Communicator& world, const std::vector<comm::RackServerGpu>& places, const job::Job& job,
    const resources::ComputePlace& place, int64_t cache_bytes,
    const std::optional<cluster_files::RingRule>& ring_rule) {
  const bool on_gpu = place.on_gpu();
  const device::MemoryInfo memory = place.device->memory();
  const int64_t program_bytes = world.all_reduce_max(on_gpu ? memory.total_bytes - memory.free_bytes
                                                            : report::peak_rss_bytes());
  report::Recorder recorder;
  const attention::Compute compute{*place.device, *place.stream, *place.backend, recorder};
  const DType operands = place.backend->operand_type(DType::bf16);
  const measure::OpSizes sizes =
      on_gpu ? measure::gpu_op_sizes() : measure::cpu_op_sizes(cache_bytes, operands);
  const auto tensors = resources::tensor_group(job, world, place);
  const int rounds = on_gpu ? 2 : 4;  // nobody else takes a part of a GPU
  cluster_files::Cluster cluster =
      measure::describe_cluster(world, tensors ? *tensors : world, places, compute, sizes,
                                cluster::memory_facts().total_bytes, rounds);
  cluster.rank.program_gib = std::round(1e3 * static_cast<double>(program_bytes) / 0x1p30) / 1e3;
  cluster.overhead.step_us += std::round(execute::measure_step_us());
  cluster.ring_rule = ring_rule;
  const std::string key = measure::ranks_key(world, compute);
  comm::together(world, [&] {
    if (world.rank() == 0) measure::keep_cluster(key, cluster);
  });
  return cluster;
}

}  // namespace pecia::settle
