// SPDX-License-Identifier: Apache-2.0
#include "lib/settle/ranks.hpp"

#include "lib/ranks/cluster/process_grid.hpp"

namespace pecia::settle {

std::vector<comm::RackServerGpu> Ranks::replica_places() const {
  const auto begin = places.begin() + int64_t{dp} * replica->size();
  return {begin, begin + replica->size()};
}

Ranks make_ranks(const std::vector<comm::RackServerGpu>& places,
                 const resources::Resources& resources, comm::Communicator& world) {
  Ranks ranks{world, {}, {}, {}};
  const cluster::ProcessGrid grid(
      {resources.dp, resources.cp, resources.sp, resources.tp, resources.pp}, places);
  const cluster::GridCoordinates mine = grid.coordinates(world.rank());
  ranks.dp = mine.dp;
  ranks.stage = mine.pp;
  const int in_replica =
      ((mine.pp * resources.cp + mine.cp) * resources.sp + mine.sp) * resources.tp + mine.tp;
  ranks.ordered = world.split(0, mine.dp * resources.replica_ranks() + in_replica);
  ranks.replica = ranks.ordered->split(mine.dp, in_replica);
  for (int dp = 0; dp < resources.dp; ++dp)
    for (const int rank : grid.replica(dp)) ranks.places.push_back(places[rank]);
  return ranks;
}

}  // namespace pecia::settle
