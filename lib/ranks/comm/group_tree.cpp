// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/group_tree.hpp"

#include <numeric>

#include "lib/base/core/error.hpp"

namespace pecia::comm {

GroupTree::GroupTree(const RankLabels& labels) {
  std::vector<int> each(labels.servers.size());
  std::iota(each.begin(), each.end(), 0);
  maps_.emplace_back(each);
  for (const std::vector<int>* level : {&labels.servers, &labels.racks}) {
    if (level->empty()) continue;
    PECIA_CHECK(level->size() == each.size(), "labels of {} ranks, of {}", level->size(),
                each.size());
    const ServerMap map(*level);
    const ServerMap& below = maps_.back();
    for (int group = 0; group < below.num_servers(); ++group)
      for (const int rank : below.ranks(group))
        PECIA_CHECK(map.server(rank) == map.server(below.ranks(group).front()),
                    "rank {} is in another rack than others of its server", rank);
    if (map.num_servers() > 1 && map.num_servers() < below.num_servers()) maps_.push_back(map);
  }
  maps_.emplace_back(std::vector<int>(each.size()));
}

GroupTree::Way GroupTree::way(int owner, int rank) const {
  Way way{top()};
  for (int acts = owner; acts != rank;) {
    --way.level;
    const ServerMap& map = maps_[way.level];
    const int next = map.delegate(map.server(rank), acts);
    if (next == acts) continue;
    way.from = acts;
    ++way.exchange;
    acts = next;
  }
  return way;
}

std::vector<int> GroupTree::delegates(int level, int rank) const {
  const ServerMap &map = maps_[level], &below = maps_[level - 1];
  std::vector<int> found;
  for (int group = 0; group < below.num_servers(); ++group)
    if (map.server(below.ranks(group).front()) == map.server(rank))
      found.push_back(below.delegate(group, rank));
  return found;
}

GroupTrees::GroupTrees(const RankLabels& labels)
    : by_servers_({labels.servers}),
      by_racks_(labels),
      least_block_by_racks_(labels.least_block_by_racks) {}

}  // namespace pecia::comm
