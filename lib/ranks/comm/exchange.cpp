// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "lib/base/core/error.hpp"
#include "lib/ranks/comm/communicator.hpp"

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

std::unique_ptr<Communicator> Communicator::by_way_of_host(std::unique_ptr<Communicator>) const {
  fail<Unsupported>("transfers of {} ranks work on host memory already", size());
}

std::unique_ptr<Communicator> Communicator::part(const std::vector<int>& ranks) {
  const auto own = std::find(ranks.begin(), ranks.end(), rank());
  PECIA_CHECK(own != ranks.end(), "rank {} is not in its own part: ranks {}", rank(),
              fmt::join(ranks, ", "));
  const int lowest = *std::min_element(ranks.begin(), ranks.end());
  return split(lowest, static_cast<int>(own - ranks.begin()));
}

}  // namespace pecia::comm
