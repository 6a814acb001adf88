// SPDX-License-Identifier: Apache-2.0
#include "lib/work/cluster_files/cluster.hpp"

#include <fmt/format.h>

namespace pecia::cluster_files {

bool RingRule::is_of(const RingRule& other) const {
  RingRule same = other;
  same.rule = rule;
  return *this == same;
}

comm::RackServerGpu Cluster::place(int number) const {
  const int server = number / ranks_per_server;
  return {fmt::format("rack{}", server / servers_per_rack), fmt::format("server{}", server),
          number % ranks_per_server};
}

int Cluster::sharing(comm::LinkLevel level) const {
  if (!links[static_cast<size_t>(level)].shared) return 1;
  return level == comm::LinkLevel::system ? ranks_per_server * servers_per_rack : ranks_per_server;
}

double Cluster::latency_s(comm::LinkLevel level, bool in_series) const {
  const Link& link = links[static_cast<size_t>(level)];
  return 1e-6 * (link.us + (in_series ? 0 : link.exchange_us.value_or(overhead.exchange_us)));
}

comm::LinkLevel Cluster::level_between(int a, int b) const {
  const int per_rack = ranks_per_server * servers_per_rack;
  return a / ranks_per_server == b / ranks_per_server ? comm::LinkLevel::server
         : a / per_rack == b / per_rack               ? comm::LinkLevel::rack
                                                      : comm::LinkLevel::system;
}

double Cluster::share_of_message(double bytes, bool in_series, comm::LinkLevel level,
                                 int peers) const {
  const bool one = peers <= 1 && level != comm::LinkLevel::server && efficiency.one_peer;
  const Efficiency& share = in_series ? efficiency.send
                            : one     ? *efficiency.one_peer
                                      : efficiency.collective;
  return share.of({.bytes = bytes});
}

std::vector<comm::RackServerGpu> Cluster::places(int ranks) const {
  std::vector<comm::RackServerGpu> all;
  for (int number = 0; number < ranks; ++number) all.push_back(place(number));
  return all;
}

}  // namespace pecia::cluster_files
