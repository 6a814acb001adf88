// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/link_costs.hpp"

#include "lib/base/report/format.hpp"
#include "lib/ranks/comm/server_map.hpp"
#include "lib/ranks/parallel/kv_routes.hpp"
#include "lib/settle/measure/calibration.hpp"
#include "lib/settle/measure/measured.hpp"

namespace pecia::settle {
namespace {

/// Whether some block of the replica has relays to choose.
bool may_relay(const Facts& facts, const resources::Resources& resources,
               std::span<const int> servers) {
  const bool exchanges = resources.sp > 1 || resources.prefill == parallel::PrefillMode::ulysses;
  const int block = resources.sp * resources.tp;
  const model::ModelConfig& config = facts.config;
  for (const int64_t kv_heads : {config.num_kv_heads, config.widest_heads().count})
    for (int first = 0; exchanges && first < std::ssize(servers); first += block) {
      std::vector<parallel::HeadRange> wanted;
      for (int rank = 0; rank < block; ++rank) {
        const int shard =
            parallel::kv_shard(resources.sp, rank / resources.tp, rank % resources.tp);
        wanted.push_back(parallel::head_shard(config.num_heads, kv_heads, block, shard).kv);
      }
      const auto of_block = servers.subspan(first, block);
      if (!parallel::KvRoutes::by_servers(wanted, of_block).are_direct()) return true;
    }
  return false;
}

/// Whether some ranks of TP are several on each of several servers.
bool may_gather_by_servers(const resources::Resources& resources, std::span<const int> servers) {
  for (int first = 0; first < std::ssize(servers); first += resources.tp) {
    const comm::ServerMap map(servers.subspan(first, resources.tp));
    if (map.is_regular() && 1 < map.num_servers() && map.num_servers() < resources.tp) return true;
  }
  return false;
}

/// Whether some ranks whose tensors are gathered or summed are on several servers of each of several
/// racks.
bool may_go_by_racks(const resources::Resources& resources, const comm::RankLabels& labels) {
  const std::span<const int> servers(labels.servers), racks(labels.racks);
  for (const int count : {resources.tp, resources.sp * resources.tp})
    for (int first = 0; first < std::ssize(servers); first += count)
      if (parallel::shape_of(servers.subspan(first, count), racks.subspan(first, count))
              .has_racks())
        return true;
  return false;
}

}  // namespace

parallel::LinkCosts link_costs(const Facts& facts, comm::Communicator& tensors,
                               const attention::Compute& compute, resources::Resources& resources) {
  const auto places = facts.ranks.replica_places();
  const comm::RankLabels labels{comm::server_of_rank(places), comm::rack_of_rank(places)};
  comm::Communicator& world = facts.ranks.world;
  const bool chooses = may_relay(facts, resources, labels.servers) ||
                       may_go_by_racks(resources, labels) ||
                       (tensors.on_stream() && may_gather_by_servers(resources, labels.servers));
  if (world.all_reduce_max(chooses ? 1 : 0) == 0) return {};
  const auto known = measure::parse_measured(facts.kept, resources);
  const parallel::LinkCosts costs =
      known ? known->links : measure::measure_link_costs(world, tensors, labels, compute);
  if (costs == parallel::LinkCosts()) return costs;
  const auto rate = [](double s_per_byte) { return report::format_count(1 / s_per_byte); };
  const std::string of_racks =
      costs.racks_s_per_byte > 0
          ? fmt::format("{}B/s between racks, ", rate(costs.racks_s_per_byte))
          : "";
  resources.reasons.add(fmt::format(
      "what several ranks of a server need crosses to it once where that pays: {}{}B/s between "
      "servers, {}B/s within, {:.0f} us for an exchange",
      of_racks, rate(costs.across_s_per_byte), rate(costs.inside_s_per_byte),
      1e6 * costs.exchange_s));
  return costs;
}

}  // namespace pecia::settle
