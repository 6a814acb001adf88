// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/link_costs.hpp"

#include <algorithm>
#include <cmath>
#include <set>

namespace pecia::parallel {
namespace {

/// The bytes from which on `exchange_s` is less than what each of them saves.
int64_t least_block(double exchange_s, double saved_s_per_byte) {
  if (saved_s_per_byte <= 0) return no_block;
  return std::max<int64_t>(1, std::llround(std::ceil(exchange_s / saved_s_per_byte)));
}

/// The number of groups of equal labels; 1 unless each has as many ranks.
int equal_groups(std::span<const int> labels) {
  const std::set<int> groups(labels.begin(), labels.end());
  const auto as_first = [&](int label) {
    return std::ranges::count(labels, label) == std::ranges::count(labels, labels.front());
  };
  return std::ranges::all_of(groups, as_first) ? std::max(1, static_cast<int>(groups.size())) : 1;
}

}  // namespace

GroupShape shape_of(std::span<const int> servers, std::span<const int> racks) {
  GroupShape shape{1, equal_groups(servers), static_cast<int>(servers.size())};
  const int num_racks = equal_groups(racks);
  if (shape.servers % num_racks == 0) shape.racks = num_racks;
  return shape;
}

int64_t least_block_by_racks(const LinkCosts& costs, const GroupShape& shape) {
  if (costs.racks_s_per_byte <= 0 || !shape.has_racks()) return no_block;
  const double other_racks = shape.racks - 1, other_servers = shape.servers / shape.racks - 1;
  return least_block(costs.exchange_s, other_racks * other_servers *
                                           (costs.racks_s_per_byte - costs.across_s_per_byte));
}

int64_t least_block_by_servers(const LinkCosts& costs, const GroupShape& shape) {
  const int ranks_per_server = shape.ranks / shape.servers;
  if (shape.servers < 2 || ranks_per_server < 2) return no_block;
  const double s = shape.servers, r = shape.racks, l = ranks_per_server;
  const double across = costs.across_s_per_byte, inside = costs.inside_s_per_byte;
  const double racks = costs.racks_s_per_byte > 0 ? costs.racks_s_per_byte : across;
  const double widest = shape.racks > 1 ? std::max(racks, across) : across;
  const double ring = std::max((s - 1 / l) * widest, (s * l - 1) * inside);
  const double by_servers = (s - s / r) * racks + (s / r - 1) * across + s * (l - 1) * inside;
  const double by_racks = (r - 1) * racks + r * (s / r - 1) * across + s * (l - 1) * inside;
  return std::min(least_block(costs.exchange_s, ring - by_servers),
                  least_block(2 * costs.exchange_s, ring - by_racks));
}

int64_t most_one_shot_bytes(const LinkCosts& costs, int ranks) {
  constexpr double hop_s = 2e-6, one_shot_s = 3e-6, h100_s_per_byte = 1 / 450e9;
  if (ranks < 2) return 0;
  const int64_t most = int64_t{ranks <= 4 ? 512 : 256} << 10;
  const double n = ranks;
  const double byte_s = costs.inside_s_per_byte > 0 ? costs.inside_s_per_byte : h100_s_per_byte;
  const double saved_s = 2 * (n - 1) * hop_s - one_shot_s;
  const double more_s_per_byte = (n - 1) * (1 - 2 / n) * byte_s;
  if (more_s_per_byte * static_cast<double>(most) <= saved_s) return most;
  return std::llround(saved_s / more_s_per_byte);
}

}  // namespace pecia::parallel
