// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/place.hpp"

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

namespace {

/// Numbers for what `key` gives of each place.
template <typename Key>
std::vector<int> numbered(std::span<const RackServerGpu> by_rank, const Key& key) {
  std::map<decltype(key(by_rank.front())), int> numbers;
  std::vector<int> found;
  for (const RackServerGpu& place : by_rank)
    found.push_back(
        numbers.try_emplace(key(place), static_cast<int>(numbers.size())).first->second);
  return found;
}

}  // namespace

std::vector<int> server_of_rank(std::span<const RackServerGpu> by_rank) {
  return numbered(by_rank,
                  [](const RackServerGpu& place) { return std::pair(place.rack, place.server); });
}

std::vector<int> rack_of_rank(std::span<const RackServerGpu> by_rank) {
  return numbered(by_rank, [](const RackServerGpu& place) { return place.rack; });
}

}  // namespace pecia::comm
