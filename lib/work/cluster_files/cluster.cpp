// SPDX-License-Identifier: Apache-2.0
#include "lib/work/cluster_files/cluster.hpp"

#include <fmt/format.h>

namespace pecia::cluster_files {

comm::RackServerGpu Cluster::place(int number) const {
  const int server = number / ranks_per_server;
  return {fmt::format("rack{}", server / servers_per_rack), fmt::format("server{}", server),
          number % ranks_per_server};
}

int Cluster::sharing(comm::LinkLevel level) const {
  if (!links[static_cast<size_t>(level)].shared) return 1;
  return level == comm::LinkLevel::system ? ranks_per_server * servers_per_rack : ranks_per_server;
}

std::vector<comm::RackServerGpu> Cluster::places(int ranks) const {
  std::vector<comm::RackServerGpu> all;
  for (int number = 0; number < ranks; ++number) all.push_back(place(number));
  return all;
}

}  // namespace pecia::cluster_files
