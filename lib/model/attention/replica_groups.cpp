// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/replica_groups.hpp"

#include <numeric>

#include "lib/base/core/error.hpp"
#include "lib/ranks/parallel/stages.hpp"

namespace pecia::attention {

using Places = std::vector<comm::RackServerGpu>;

namespace {

/// Bytes that travel would mean other numbers on the other side.
void require_same_wire(comm::Communicator& replica, DType wire) {
  PECIA_CHECK(wire == DType::fp32 || wire == DType::bf16, "activations travel in {}",
              name_of(wire));
  const auto wires = replica.all_gather(std::as_bytes(std::span(&wire, 1)));
  const auto of = [&](size_t rank) { return static_cast<DType>(wires[rank].at(0)); };
  for (size_t rank = 1; rank < wires.size(); ++rank)
    if (of(rank) != of(0))
      fail<InputError>(
          "model.wire: activations travel in {} on rank {} of a replica and in {} on its rank 0; "
          "name one type in the job",
          name_of(of(rank)), rank, name_of(of(0)));
}

}  // namespace

ReplicaGroups make_replica_groups(comm::Communicator& replica, int sp, int tp,
                                  std::span<const comm::RackServerGpu> places, int ep, DType wire,
                                  bool copies, int stages) {
  const parallel::StagePlace stage = parallel::stage_place(replica.rank(), replica.size(), stages);
  const int block = sp * tp, rank = stage.rank, size = stage.ranks;
  PECIA_CHECK(sp >= 1 && tp >= 1 && size % block == 0, "{} ranks in blocks of SP {} × TP {}", size,
              sp, tp);
  PECIA_CHECK(ep == 1 || ep == block, "experts over {} of the {} ranks of a block", ep, block);
  PECIA_CHECK(places.empty() || std::ssize(places) == replica.size(), "{} places for {} ranks",
              places.size(), replica.size());
  require_same_wire(replica, wire);
  ReplicaGroups groups;
  groups.wire = wire;
  groups.stages = stages, groups.stage = stage.stage;
  groups.cp = size / block;
  groups.cp_index = rank / block;
  groups.place = {sp, tp, rank % block / tp, rank % tp, ep};
  const int cp_index = groups.cp_index, sp_index = groups.place.sp_index,
            tp_index = groups.place.tp_index;
  std::vector<int> ring, of_sp, of_tp, of_block;  // ranks of the replica
  const int first = stage.stage * stage.ranks;    // of the stage
  const auto rank_at = [&](int cp, int i, int j) { return first + (cp * sp + i) * tp + j; };
  for (int cp = 0; cp < groups.cp; ++cp) ring.push_back(rank_at(cp, sp_index, tp_index));
  for (int i = 0; i < sp; ++i) of_sp.push_back(rank_at(cp_index, i, tp_index));
  for (int j = 0; j < tp; ++j) {
    of_tp.push_back(rank_at(cp_index, sp_index, j));
    for (int i = 0; i < sp; ++i) of_block.push_back(rank_at(cp_index, i, j));  // by kv_shard
  }
  groups.ring = replica.part(ring);
  groups.sp = replica.part(of_sp);
  groups.tp = replica.part(of_tp);
  groups.block = replica.part(of_block);
  std::vector<int> line;
  for (int other = 0; stages > 1 && other < stages; ++other) line.push_back(stage.rank_in(other));
  if (stages > 1) groups.line = replica.part(line);
  if (copies) {
    std::vector<int> all(groups.ring->size());
    std::iota(all.begin(), all.end(), 0);
    groups.copies = groups.ring->on_stream()
                        ? groups.ring->by_way_of_host(groups.ring->on_host().part(all))
                        : groups.ring->part(all);
  }

  const auto places_of = [&](const std::vector<int>& ranks) {
    Places there;
    for (const int each : ranks)
      there.push_back(places.empty() ? comm::RackServerGpu{} : places[each]);
    return there;
  };
  const Places in_ring = places_of(ring), in_sp = places_of(of_sp), in_tp = places_of(of_tp),
               in_block = places_of(of_block);
  groups.ring_places = in_ring;
  groups.tp_places = in_tp;
  groups.sp_servers = comm::server_of_rank(in_sp);
  const auto labels = [](const Places& there) {
    return comm::RankLabels{comm::server_of_rank(there), comm::rack_of_rank(there),
                            parallel::no_block};
  };
  groups.tp_labels = labels(in_tp);
  groups.block_labels = labels(in_block);
  groups.ring->set_places(in_ring);
  groups.sp->set_places(in_sp);
  groups.tp->set_places(in_tp);
  groups.block->set_places(in_block);
  if (groups.copies) groups.copies->set_places(in_ring);
  if (groups.line) groups.line->set_places(places_of(line));
  return groups;
}

bool stays_on_stream(const ReplicaGroups& groups) {
  // A rank with neighbours has them in the ring or in the block.
  for (const auto* group : {&groups.ring, &groups.block})
    if ((*group)->size() > 1 && !(*group)->on_stream()) return false;
  return true;
}

comm::Traffic traffic_of(const ReplicaGroups& groups) {
  comm::Traffic sum;
  for (const auto* group : {&groups.ring, &groups.sp, &groups.tp, &groups.block})
    sum += (*group)->traffic();
  if (groups.copies) sum += groups.copies->traffic();
  if (groups.line) sum += groups.line->traffic();
  return sum;
}

}  // namespace pecia::attention
