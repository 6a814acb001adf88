// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/expert_routes.hpp"

#include <algorithm>

#include "lib/ranks/parallel/heads.hpp"

namespace pecia::parallel {

RowRange held_experts(int64_t experts, const WeightCut& cut) {
  return row_part({0, experts}, cut.expert_ranks, cut.expert_index);
}

std::vector<BlockPlace> expert_peers(Sharding sharding, const BlockPlace& place) {
  std::vector<BlockPlace> peers;
  switch (sharding) {
    case Sharding::base:
    case Sharding::sp_tp:
      for (int sp_index = 0; sp_index < place.sp; ++sp_index) {
        peers.push_back(place);
        peers.back().sp_index = sp_index;
      }
      return peers;
    case Sharding::gathered:
      peers.resize(static_cast<size_t>(place.sp) * place.tp, place);
      for (int sp_index = 0; sp_index < place.sp; ++sp_index)
        for (int tp_index = 0; tp_index < place.tp; ++tp_index) {
          BlockPlace& peer = peers[kv_shard(place.sp, sp_index, tp_index)];
          peer.sp_index = sp_index, peer.tp_index = tp_index;
        }
      return peers;
    case Sharding::shift:
      break;
  }
  return {place};
}

std::vector<int32_t> rows_taking(std::span<const ExpertChoice> choices, int64_t per_row,
                                 RowRange held) {
  std::vector<int32_t> rows;
  const auto is_held = [&](const ExpertChoice& choice) {
    return held.begin <= choice.expert && choice.expert < held.end;
  };
  const int64_t count = static_cast<int64_t>(choices.size()) / per_row;
  for (int64_t row = 0; row < count; ++row)
    if (std::ranges::any_of(choices.subspan(row * per_row, per_row), is_held))
      rows.push_back(static_cast<int32_t>(row));
  return rows;
}

}  // namespace pecia::parallel
