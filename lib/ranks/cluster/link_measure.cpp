// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/cluster/link_measure.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "lib/base/core/error.hpp"

namespace pecia::cluster {
namespace {

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;

constexpr int batches = 5;
constexpr int64_t small_bytes = 8;

double median(std::array<double, batches> values) {
  std::sort(values.begin(), values.end());
  return values[batches / 2];
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// How many rounds of `round_s` fit into one batch.
int64_t rounds_within(std::chrono::nanoseconds budget, double round_s) {
  constexpr double most = 10000;
  const double wanted = std::chrono::duration<double>(budget).count() / batches / round_s;
  return static_cast<int64_t>(std::clamp(wanted, 1.0, most));
}

double gb_per_s(int64_t bytes, double seconds) {
  return static_cast<double>(bytes) / seconds * 1e-9;
}

/// Collective: returns the value of rank `rank` on every rank.
double value_of(comm::Communicator& world, int rank, double mine) {
  return world.all_reduce_sum(world.rank() == rank ? mine : 0.0);
}

template <typename T>
std::vector<T> evenly_chosen(const std::vector<T>& all, size_t limit) {
  if (all.size() <= limit) return all;
  std::vector<T> chosen;
  for (size_t i = 0; i < limit; ++i) chosen.push_back(all[i * all.size() / limit]);
  return chosen;
}

/// Collective: seconds that a message takes one way; 0 on ranks outside the pair.
double one_way_s(comm::Communicator& world, RankPair pair, int64_t bytes,
                 std::chrono::nanoseconds budget) {
  const bool starts = world.rank() == pair.from, answers = world.rank() == pair.to;
  Bytes out, in;
  if (starts || answers) out.resize(bytes), in.resize(bytes);
  const auto round_trips = [&](int64_t count) {
    const auto begin = Clock::now();
    for (int64_t i = 0; i < count && starts; ++i) {
      world.start_send_receive(out, pair.to, {}, pair.to)->wait();
      world.start_send_receive({}, pair.to, in, pair.to)->wait();
    }
    for (int64_t i = 0; i < count && answers; ++i) {
      world.start_send_receive({}, pair.from, in, pair.from)->wait();
      world.start_send_receive(out, pair.from, {}, pair.from)->wait();
    }
    return seconds_since(begin) / static_cast<double>(count);
  };
  round_trips(1);  // the first message makes buffers and connections
  const double once_s = value_of(world, pair.from, round_trips(1));
  const int64_t rounds = rounds_within(budget, once_s);
  std::array<double, batches> seconds{};
  for (double& batch : seconds) {
    world.barrier();
    batch = round_trips(rounds) / 2;
  }
  return value_of(world, pair.from, median(seconds));
}

struct Neighbours {
  bool there = false;
  int previous = 0, next = 0;
};

Neighbours neighbours_of(int rank, const std::vector<std::vector<int>>& rings) {
  for (const auto& ring : rings) {
    const auto self = std::find(ring.begin(), ring.end(), rank);
    if (self == ring.end() || ring.size() < 2) continue;
    const size_t at = self - ring.begin(), size = ring.size();
    return {true, ring[(at + size - 1) % size], ring[(at + 1) % size]};
  }
  return {};
}

/// Seconds from a common start until the message of the previous rank is here; 0 outside rings.
double receive_s(comm::Communicator& world, const Neighbours& near, Bytes& out, Bytes& in) {
  world.barrier();
  if (!near.there) return 0;
  const auto begin = Clock::now();
  const auto received = world.start_send_receive({}, near.previous, in, near.previous);
  const auto sent = world.start_send_receive(out, near.next, {}, near.next);
  received->wait();
  const double seconds = seconds_since(begin);
  sent->wait();
  return seconds;
}

/// Seconds per step of many small steps that follow each other without a barrier.
double step_s(comm::Communicator& world, const Neighbours& near, int64_t steps) {
  Bytes out(small_bytes), in(small_bytes);
  world.barrier();
  const auto begin = Clock::now();
  for (int64_t i = 0; i < steps && near.there; ++i)
    world.start_send_receive(out, near.next, in, near.previous)->wait();
  return seconds_since(begin) / static_cast<double>(steps);
}

std::vector<double> all_values(comm::Communicator& world, double mine) {
  std::vector<double> values;
  for (const Bytes& bytes : world.all_gather(std::as_bytes(std::span(&mine, 1))))
    values.push_back(*reinterpret_cast<const double*>(bytes.data()));
  return values;
}

double slowest(comm::Communicator& world, double mine) {
  const std::vector<double> values = all_values(world, mine);
  return *std::max_element(values.begin(), values.end());
}

}  // namespace

std::vector<RankPair> representative_pairs(std::span<const comm::RackServerGpu> places, int limit) {
  PECIA_CHECK(limit >= 1, "at most {} pairs", limit);
  std::map<std::string, std::map<std::string, std::vector<int>>> racks;  // ranks by device
  std::map<comm::RackServerGpu, int> by_place;
  for (size_t rank = 0; rank < places.size(); ++rank)
    by_place[places[rank]] = static_cast<int>(rank);
  for (const auto& [place, rank] : by_place) racks[place.rack][place.server].push_back(rank);

  std::array<std::vector<RankPair>, comm::num_link_levels> pairs;
  const auto add = [&](int from, int to) {
    pairs[static_cast<size_t>(comm::link_level(places[from], places[to]))].push_back({from, to});
  };
  int last_rack = -1;
  for (const auto& [rack, servers] : racks) {
    int last_server = -1;
    for (const auto& [server, ranks] : servers) {
      if (ranks.size() > 1) add(ranks[0], ranks[1]);
      if (last_server >= 0) add(last_server, ranks[0]);
      last_server = ranks[0];
    }
    const int first = servers.begin()->second.front();
    if (last_rack >= 0) add(last_rack, first);
    last_rack = first;
  }
  std::vector<RankPair> chosen;
  for (const auto& of_level : pairs)
    for (const RankPair& pair : evenly_chosen(of_level, static_cast<size_t>(limit)))
      chosen.push_back(pair);
  return chosen;
}

std::vector<PairFigures> measure_pairs(comm::Communicator& world, std::span<const RankPair> pairs,
                                       const MeasureOptions& options) {
  std::vector<PairFigures> figures;
  for (const RankPair& pair : pairs) {
    PECIA_CHECK(pair.from != pair.to, "a pair of rank {} with itself", pair.from);
    const double small_s = one_way_s(world, pair, small_bytes, options.budget);
    const double large_s = one_way_s(world, pair, options.large_bytes, options.budget);
    figures.push_back({pair, small_s * 1e6, gb_per_s(options.large_bytes, large_s)});
  }
  return figures;
}

std::vector<RingFigures> measure_rings(comm::Communicator& world,
                                       const std::vector<std::vector<int>>& rings,
                                       const MeasureOptions& options) {
  const Neighbours near = neighbours_of(world.rank(), rings);
  step_s(world, near, 1);
  const double once_s = slowest(world, step_s(world, near, 1));
  const int64_t steps = rounds_within(options.budget, once_s);
  std::array<double, batches> step{}, receive{};
  for (double& batch : step) batch = slowest(world, step_s(world, near, steps));

  Bytes out, in;
  if (near.there) out.resize(options.large_bytes), in.resize(options.large_bytes);
  receive_s(world, near, out, in);
  for (double& batch : receive) batch = receive_s(world, near, out, in);
  const std::vector<double> receive_by_rank = all_values(world, median(receive));

  std::vector<RingFigures> figures;
  for (const auto& ring : rings) {
    if (ring.size() < 2) continue;
    RingFigures of{ring, median(step) * 1e6, {}};
    for (size_t at = 0; at < ring.size(); ++at)
      of.bandwidth_gb_s.push_back(
          gb_per_s(options.large_bytes, receive_by_rank[ring[(at + 1) % ring.size()]]));
    figures.push_back(std::move(of));
  }
  return figures;
}

}  // namespace pecia::cluster
