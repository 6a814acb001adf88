// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/traffic_meter.hpp"

#include "lib/base/core/error.hpp"

namespace pecia::comm {

void TrafficMeter::set_places(const std::vector<RackServerGpu>& by_rank) {
  PECIA_CHECK(by_rank.size() == level_of_rank_.size(), "{} places for {} ranks", by_rank.size(),
              level_of_rank_.size());
  for (size_t rank = 0; rank < by_rank.size(); ++rank)
    level_of_rank_[rank] = link_level(by_rank[rank_], by_rank[rank]);
}

void TrafficMeter::count(int64_t bytes, int to) {
  if (bytes == 0 || to == rank_) return;
  const auto level = static_cast<size_t>(level_of_rank_.at(to));
  ++traffic_.messages, ++traffic_.messages_by_level[level];
  traffic_.bytes += bytes, traffic_.bytes_by_level[level] += bytes;
}

}  // namespace pecia::comm
