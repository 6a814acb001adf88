// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/server_map.hpp"

#include <algorithm>
#include <bit>
#include <map>

namespace pecia::comm {

ServerMap::ServerMap(std::span<const int> label_of_rank) {
  std::map<int, int> server_of_label;
  for (const int label : label_of_rank) {
    const int next = num_servers();
    const int server = server_of_label.try_emplace(label, next).first->second;
    if (server == next) ranks_.emplace_back();
    const int rank = num_ranks();
    server_of_rank_.push_back(server);
    index_on_server_.push_back(static_cast<int>(ranks_[server].size()));
    ranks_[server].push_back(rank);
  }
}

bool sums_as_flat(std::span<const int> label_of_rank) {
  const ServerMap servers(label_of_rank);
  if (servers.num_ranks() == 0) return true;
  const auto width = static_cast<int>(servers.ranks(0).size());
  if (servers.num_servers() > 1 && !std::has_single_bit(static_cast<unsigned>(width))) return false;
  for (int rank = 0; rank < servers.num_ranks(); ++rank)
    if (servers.server(rank) != rank / width) return false;
  return true;
}

RankLabels labels_as_flat(RankLabels labels) {
  if (!sums_as_flat(labels.servers)) return {std::vector<int>(labels.servers.size())};
  if (!sums_as_flat(labels.racks)) labels.racks.clear();
  return labels;
}

bool ServerMap::is_regular() const {
  const auto width = num_servers() == 0 ? 1 : static_cast<int>(ranks_.front().size());
  for (int rank = 0; rank < num_ranks(); ++rank)
    if (server_of_rank_[rank] != rank / width) return false;
  return num_ranks() == num_servers() * width;
}

int ServerMap::delegate(int server, int rank) const {
  const std::vector<int>& ranks = ranks_[server];
  return ranks[index_on_server_[rank] % ranks.size()];
}

}  // namespace pecia::comm
