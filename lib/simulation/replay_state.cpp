// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/replay_state.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace pecia::simulation {
namespace {

constexpr double tolerance = 1e-6;

/// Starts of a rank count back from its last one.
int64_t starts_ago(const std::vector<PlayedRank>& ranks, const Side& side) {
  return std::ssize(ranks[side.rank].started) - side.number;
}

void add_rank(double now, int64_t lap, const PlayedRank& rank, ReplayState& state) {
  const int64_t starts = std::ssize(rank.started);
  const auto ago = [&](int64_t number) { return number < 0 ? -1 : starts - number; };
  auto& counts = state.counts;
  counts.insert(counts.end(), {static_cast<int64_t>(rank.section), static_cast<int64_t>(rank.step),
                               rank.time_of_section - lap, ago(rank.waits_for)});
  state.seconds.push_back(rank.now - now);
  if (rank.waits_for >= 0) state.seconds.push_back(rank.waits_since - now);
  for (int64_t number = rank.first_open; number < starts; ++number) {
    const Started& started = rank.started[number];
    if (started.done()) continue;
    counts.insert(counts.end(), {ago(number), started.open, ago(started.after), ago(started.then),
                                 started.begun ? 1 : 0, started.bytes});
  }
}

/// Sides by what says which one meets them, in an order that does not depend on a hash.
void add_sides(const std::vector<PlayedRank>& ranks, const Sides& sides, ReplayState& state) {
  std::vector<std::tuple<uint64_t, int, int, int64_t, int, int64_t, int64_t>> all;
  for (const auto& [match, queue] : sides)
    for (const Side& side : queue) {
      const auto& operations = ranks[side.rank].operations;
      const auto own = operations.find(match.group);
      const int64_t operations_ago =
          match.operation < 0 || own == operations.end() ? -1 : own->second - match.operation;
      all.emplace_back(match.group, match.from, match.to, operations_ago, side.rank,
                       starts_ago(ranks, side), side.bytes);
    }
  std::ranges::sort(all);
  for (const auto& [group, from, to, operations_ago, rank, ago, bytes] : all)
    state.counts.insert(state.counts.end(),
                        {static_cast<int64_t>(group), from, to, operations_ago, rank, ago, bytes});
  state.counts.push_back(-1);
}

void add_messages(double now, const std::vector<PlayedRank>& ranks,
                  const std::vector<std::pair<Side, Side>>& met, const Network& network,
                  ReplayState& state) {
  struct UnderWay {
    std::tuple<int, int64_t, int, int64_t, bool, int64_t> key;
    Network::UnderWay what;
  };
  std::vector<UnderWay> all;
  for (const Network::UnderWay& message : network.under_way(now)) {
    const auto& [a, b] = met[message.number];
    all.push_back(
        {{a.rank, starts_ago(ranks, a), b.rank, starts_ago(ranks, b), message.moves, a.bytes},
         message});
  }
  std::ranges::sort(all, [](const UnderWay& a, const UnderWay& b) {
    return std::tie(a.key, a.what.changes_in) < std::tie(b.key, b.what.changes_in);
  });
  for (const UnderWay& message : all) {
    const auto& [rank, ago, other, other_ago, moves, bytes] = message.key;
    state.counts.insert(state.counts.end(), {rank, ago, other, other_ago, moves ? 1 : 0, bytes});
    state.seconds.push_back(message.what.changes_in);
    state.bytes.push_back(message.what.left);
  }
}

}  // namespace

ReplayState state_of(double now, int64_t lap, const std::vector<PlayedRank>& ranks,
                     const Sides& sends, const Sides& receives,
                     const std::vector<std::pair<Side, Side>>& met, const Network& network) {
  ReplayState state;
  state.at = now;
  state.lap = lap;
  state.messages = std::ssize(met);
  for (const PlayedRank& rank : ranks) {
    state.spent.push_back(rank.times);
    add_rank(now, lap, rank, state);
  }
  add_sides(ranks, sends, state);
  add_sides(ranks, receives, state);
  add_messages(now, ranks, met, network, state);
  return state;
}

bool alike(const ReplayState& earlier, const ReplayState& later) {
  const double seconds = tolerance * (later.at - earlier.at);
  const auto near = [&](double a, double b) { return std::abs(a - b) <= seconds; };
  const auto as_many = [](double a, double b) { return std::abs(a - b) <= tolerance * (a + b); };
  return earlier.counts == later.counts &&
         std::ranges::equal(earlier.seconds, later.seconds, near) &&
         std::ranges::equal(earlier.bytes, later.bytes, as_many);
}

}  // namespace pecia::simulation
