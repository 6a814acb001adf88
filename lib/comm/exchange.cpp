// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "lib/comm/communicator.hpp"

namespace pecia::comm {

std::string Exchange::peers() const {
  std::vector<int> ranks;
  for (const auto& [bytes, from] : receives)
    if (!bytes.empty()) ranks.push_back(from);
  for (const auto& [bytes, to] : sends)
    if (!bytes.empty()) ranks.push_back(to);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks.empty() ? "no rank" : fmt::format("ranks {}", fmt::join(ranks, ", "));
}

}  // namespace pecia::comm
