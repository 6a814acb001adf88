// SPDX-License-Identifier: Apache-2.0
#include "lib/comm/place.hpp"

#include <fmt/format.h>

#include <map>
#include <utility>

namespace pecia::comm {

std::string to_string(const RackServerGpu& place) {
  return fmt::format("{}:{}:{}", place.rack.empty() ? "-" : place.rack, place.server, place.device);
}

LinkLevel link_level(const RackServerGpu& a, const RackServerGpu& b) {
  if (a.rack != b.rack) return LinkLevel::system;
  return a.server == b.server ? LinkLevel::server : LinkLevel::rack;
}

std::vector<int> server_of_rank(std::span<const RackServerGpu> by_rank) {
  std::map<std::pair<std::string, std::string>, int> numbers;
  std::vector<int> servers;
  for (const RackServerGpu& place : by_rank) {
    const int next = static_cast<int>(numbers.size());
    servers.push_back(numbers.try_emplace({place.rack, place.server}, next).first->second);
  }
  return servers;
}

}  // namespace pecia::comm
