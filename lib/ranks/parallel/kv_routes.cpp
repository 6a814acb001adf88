// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/kv_routes.hpp"

#include <algorithm>

#include "lib/base/core/error.hpp"

namespace pecia::parallel {

KvRoutes KvRoutes::by_servers(std::span<const HeadRange> wanted, std::span<const int> servers) {
  PECIA_CHECK(wanted.size() == servers.size(), "heads of {} ranks, servers of {}", wanted.size(),
              servers.size());
  const auto size = static_cast<int>(wanted.size());
  const auto index_on_server = [&](int rank) {
    return std::count(servers.begin(), servers.begin() + rank, servers[rank]);
  };
  KvRoutes routes;
  routes.num_ranks_ = wanted.size();
  routes.relays_.resize(wanted.size() * wanted.size());
  bool relayed = false;
  for (int to = 0; to < size; ++to) {
    std::vector<int> neighbourhood;
    for (int rank = 0; rank < size; ++rank)
      if (servers[rank] == servers[to] && wanted[rank] == wanted[to]) neighbourhood.push_back(rank);
    for (int from = 0; from < size; ++from) {
      const int relay =
          neighbourhood[static_cast<size_t>(index_on_server(from)) % neighbourhood.size()];
      const bool directly = servers[from] == servers[to] || relay == to;
      routes.relays_[static_cast<size_t>(from) * wanted.size() + to] = directly ? from : relay;
      relayed |= !directly;
    }
  }
  return relayed ? routes : KvRoutes();
}

std::vector<int> KvRoutes::relayed_by(int relay) const {
  std::vector<int> sources;
  const auto size = static_cast<int>(num_ranks_);
  for (int from = 0; from < size; ++from)
    for (int to = 0; to < size && from != relay; ++to)
      if (last_hop(from, to) == relay) {
        sources.push_back(from);
        break;
      }
  return sources;
}

double saved_s(const KvRoutes& routes, std::span<const RowRange> rows, double row_bytes,
               const LinkCosts& costs) {
  if (routes.are_direct()) return 0;
  const auto size = static_cast<int>(rows.size());
  std::vector<int64_t> saved(rows.size()), passed(rows.size());  // rows
  for (int from = 0; from < size; ++from)
    for (int to = 0; to < size; ++to) {
      const int relay = routes.last_hop(from, to);
      if (relay == from) continue;
      saved[from] += rows[from].size();
      passed[relay] += rows[from].size();
    }
  return row_bytes * (static_cast<double>(std::ranges::max(saved)) * costs.across_s_per_byte -
                      static_cast<double>(std::ranges::max(passed)) * costs.inside_s_per_byte) -
         costs.exchange_s;
}

}  // namespace pecia::parallel
