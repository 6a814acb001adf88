// SPDX-License-Identifier: Apache-2.0
#include "lib/foresight/settled_levels.hpp"

#include <algorithm>

#include "lib/core/fp8_vector.hpp"
#include "lib/machines/op_time.hpp"
#include "lib/parallel/level_rule.hpp"
#include "lib/resources/tuned_setting.hpp"

namespace pecia::foresight {
namespace {

/// FLOP/s of attention where a rank's rows see as many keys as the rank has rows.
double attention_flops(const Replica& replica, const machines::Cluster& cluster) {
  const model::ModelConfig& config = replica.config;
  const resources::Resources& resources = replica.resources;
  const DType held = resources.kv_dtype;
  kernels::OpWork op{"attention", held};
  op.rows = std::max<int64_t>(1, resources.max_batch_tokens / replica.ranks());
  op.operands = replica.traits.operands_of(held);
  op.depth = static_cast<double>(op.rows);
  op.width = config.num_heads * config.head_dim;
  op.flops = 4.0 * op.depth * static_cast<double>(op.rows * op.width);
  return op.flops / machines::op_seconds(op, cluster);
}

}  // namespace

double all_to_all_bandwidth(const machines::Cluster& cluster, int ranks) {
  const comm::LinkLevel level = comm::link_level(cluster.place(0), cluster.place(ranks - 1));
  const machines::Link& link = cluster.links[static_cast<size_t>(level)];
  constexpr double long_message = 1 << 24;
  return 1e9 * link.gbs * cluster.efficiency.collective.of({.bytes = long_message}) /
         std::min(cluster.sharing(level), ranks);
}

std::optional<parallel::SparseSetting> settled_levels(const Replica& replica,
                                                      const machines::Cluster& cluster) {
  const resources::Resources& resources = replica.resources;
  std::optional<parallel::SparseSetting> setting = resources.sparse;
  if (!resources.levels_from() || setting->micro) return setting;
  parallel::RingInputs in;
  in.ranks = resources.cp;
  in.shape = {static_cast<double>(replica.config.num_heads),
              static_cast<double>(replica.config.num_kv_heads),
              element_bytes(resources.kv_dtype, replica.config.head_dim)};
  in.rates.flops = attention_flops(replica, cluster);
  in.rates.bandwidth = in.rates.all_to_all_bandwidth =
      all_to_all_bandwidth(cluster, replica.ranks());
  in.load.add(resources.max_batch_tokens, 0);
  const auto levels = resources::levels_by_place(
      resources.level_places(cluster.places(replica.ranks())))(setting->levels);
  setting->micro = parallel::best_micro(in, levels, setting->rule);
  return setting;
}

}  // namespace pecia::foresight
