// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/cluster/grid_order.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lib/base/core/error.hpp"

namespace pecia::cluster {
namespace {

using Ranks = std::vector<int>;

/// An order of `sizes` in which as many prefixes as possible have a sum that is a multiple of
/// `unit`. Ties are broken by index.
std::vector<size_t> order_of_most_multiples(const std::vector<int64_t>& sizes, int64_t unit) {
  const size_t count = sizes.size(), sets = size_t{1} << count;
  std::vector<int64_t> sum(sets), most(sets);  // indexed by the set of sizes that come first
  std::vector<size_t> last(sets);
  for (size_t set = 1; set < sets; ++set) {
    most[set] = -1;
    for (size_t i = 0; i < count; ++i) {
      const size_t bit = size_t{1} << i;
      if ((set & bit) == 0) continue;
      sum[set] = sum[set ^ bit] + sizes[i];
      if (most[set ^ bit] >= most[set]) most[set] = most[set ^ bit], last[set] = i;
    }
    most[set] += sum[set] % unit == 0;
  }
  std::vector<size_t> order(count);
  for (size_t set = sets - 1, at = count; at > 0; set ^= size_t{1} << last[set])
    order[--at] = last[set];
  return order;
}

/// Puts `rests`, each shorter than a replica, into the order in which they are joined.
std::vector<Ranks> in_joining_order(std::vector<Ranks> rests, size_t replica_ranks) {
  constexpr size_t most_searched = 16;
  std::vector<Ranks> ordered;
  for (size_t i = 0; i < rests.size(); ++i) {
    const auto rest = std::find_if(
        rests.begin() + static_cast<int64_t>(i) + 1, rests.end(), [&](const Ranks& other) {
          return !other.empty() && other.size() + rests[i].size() == replica_ranks;
        });
    if (rests[i].empty() || rest == rests.end()) continue;
    ordered.push_back(std::exchange(rests[i], {}));
    ordered.push_back(std::exchange(*rest, {}));
  }
  std::erase_if(rests, [](const Ranks& rest) { return rest.empty(); });
  std::vector<size_t> order(rests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (rests.size() <= most_searched) {
    std::vector<int64_t> sizes;
    for (const Ranks& rest : rests) sizes.push_back(static_cast<int64_t>(rest.size()));
    order = order_of_most_multiples(sizes, static_cast<int64_t>(replica_ranks));
  }
  for (const size_t index : order) ordered.push_back(std::move(rests[index]));
  return ordered;
}

}  // namespace

std::vector<int> grid_order(std::span<const comm::RackServerGpu> places, int replica_ranks) {
  PECIA_CHECK(replica_ranks >= 1 && places.size() % static_cast<size_t>(replica_ranks) == 0,
              "{} ranks in replicas of {}", places.size(), replica_ranks);
  const auto nearer = [&](int a, int b) { return places[a] < places[b]; };
  Ranks sorted(places.size());
  std::iota(sorted.begin(), sorted.end(), 0);
  std::sort(sorted.begin(), sorted.end(), nearer);
  for (size_t i = 1; i < sorted.size(); ++i)
    PECIA_CHECK(places[sorted[i - 1]] != places[sorted[i]], "two ranks at {}",
                comm::to_string(places[sorted[i]]));

  std::vector<Ranks> replicas, rests;
  for (auto begin = sorted.begin(); begin != sorted.end();) {
    const auto rack_end = std::find_if(
        begin, sorted.end(), [&](int rank) { return places[rank].rack != places[*begin].rack; });
    for (; rack_end - begin >= replica_ranks; begin += replica_ranks)
      replicas.emplace_back(begin, begin + replica_ranks);
    if (begin != rack_end) rests.emplace_back(begin, rack_end);
    begin = rack_end;
  }
  Ranks joined;
  for (const Ranks& rest : in_joining_order(std::move(rests), static_cast<size_t>(replica_ranks)))
    joined.insert(joined.end(), rest.begin(), rest.end());
  for (auto begin = joined.begin(); begin != joined.end(); begin += replica_ranks) {
    replicas.emplace_back(begin, begin + replica_ranks);
    std::sort(replicas.back().begin(), replicas.back().end(), nearer);
  }
  std::sort(replicas.begin(), replicas.end(),
            [&](const Ranks& a, const Ranks& b) { return nearer(a.front(), b.front()); });
  Ranks order;
  for (const Ranks& replica : replicas) order.insert(order.end(), replica.begin(), replica.end());
  return order;
}

}  // namespace pecia::cluster
