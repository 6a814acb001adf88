// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/link_costs.hpp"

#include <algorithm>
#include <cmath>

namespace pecia::parallel {

int64_t least_block_by_servers(const LinkCosts& costs, int servers, int ranks_per_server) {
  if (servers < 2 || ranks_per_server < 2) return no_block;
  const double s = servers, l = ranks_per_server;
  const double ring =
      std::max((s - 1 / l) * costs.across_s_per_byte, (s * l - 1) * costs.inside_s_per_byte);
  const double by_servers =
      (s - 1) * costs.across_s_per_byte + s * (l - 1) * costs.inside_s_per_byte;
  if (by_servers >= ring) return no_block;
  return std::max<int64_t>(1, std::llround(std::ceil(costs.exchange_s / (ring - by_servers))));
}

}  // namespace pecia::parallel
