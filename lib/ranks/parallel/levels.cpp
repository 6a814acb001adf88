// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/parallel/levels.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "lib/base/core/error.hpp"

namespace pecia::parallel {
namespace {

/// Numbers runs of equal labels from 0 on.
std::vector<int> runs_of(const std::vector<int>& labels, const std::vector<int>& within) {
  std::vector<int> segments;
  for (size_t rank = 0; rank < labels.size(); ++rank) {
    const bool same =
        rank > 0 && labels[rank] == labels[rank - 1] && within[rank] == within[rank - 1];
    segments.push_back(rank == 0 ? 0 : segments.back() + (same ? 0 : 1));
  }
  return segments;
}

std::vector<int> alone(int ranks) {
  std::vector<int> segments(ranks);
  std::iota(segments.begin(), segments.end(), 0);
  return segments;
}

int count_of(const std::vector<int>& segments) {
  return segments.back() + 1;
}

/// Whether the second of two segments is the first in a group of ranks, so that each is as often first
/// among every few groups next to each other: 0 1 1 0 1 0 0 1.
bool begins_with_second(unsigned group) {
  return std::popcount(group) % 2 == 1;
}

/// By segment of `upper`: how many segments of `lower` it has.
std::vector<int> parts_of(const std::vector<int>& lower, const std::vector<int>& upper) {
  std::vector<int> parts(count_of(upper));
  for (size_t rank = 0; rank < lower.size(); ++rank)
    if (rank == 0 || lower[rank] != lower[rank - 1]) ++parts[upper[rank]];
  return parts;
}

/// A level between two: each segment of `upper` is cut into groups of about as many segments of
/// `lower` as it then has groups.
std::vector<int> between(const std::vector<int>& lower, const std::vector<int>& upper) {
  const std::vector<int> parts = parts_of(lower, upper);
  std::vector<int> segments;
  int segment = -1, part = 0;
  for (size_t rank = 0; rank < lower.size(); ++rank) {
    const bool new_upper = rank == 0 || upper[rank] != upper[rank - 1];
    const bool new_lower = rank == 0 || lower[rank] != lower[rank - 1];
    part = new_upper ? 0 : part + (new_lower ? 1 : 0);
    const auto group = static_cast<int>(std::ceil(std::sqrt(parts[upper[rank]])));
    if (new_upper || (new_lower && part % group == 0)) ++segment;
    segments.push_back(segment);
  }
  return segments;
}

}  // namespace

Levels::Levels(int ranks, std::vector<std::vector<int>> joins) {
  PECIA_CHECK(ranks >= 1, "levels of {} ranks", ranks);
  segments_.push_back(alone(ranks));
  for (std::vector<int>& join : joins) {
    const std::vector<int>& below = segments_.back();
    PECIA_CHECK(std::ssize(join) == ranks && join.front() == 0, "{} segments of {} ranks",
                join.size(), ranks);
    for (int rank = 1; rank < ranks; ++rank) {
      const int step = join[rank] - join[rank - 1];
      PECIA_CHECK(step == 0 || (step == 1 && below[rank] != below[rank - 1]),
                  "rank {} is in segment {}, the one before in {}", rank, join[rank],
                  join[rank - 1]);
    }
    segments_.push_back(std::move(join));
  }
  for (const Geometry geometry : {Geometry::disjoint, Geometry::nested})
    deal_orders_[static_cast<size_t>(geometry)] = orders_of_work(geometry);
}

Levels::DealOrders Levels::orders_of_work(Geometry geometry) const {
  DealOrders all;
  for (int level = 1; level <= count(); ++level) {
    auto& orders = all.emplace_back(count_of(segments_[level - 1]));
    if (level == 1) {
      for (int rank = 0; rank < ranks(); ++rank) orders[rank] = {rank};
      continue;
    }
    // By place in the order of the segment below, as a share of its length.
    std::vector<std::vector<std::pair<double, int>>> placed(orders.size());
    for (int below = 0; below < count_of(segments_[level - 2]); ++below) {
      const std::vector<int>& order = all[level - 2][below];
      for (size_t i = 0; i < order.size(); ++i)
        placed[segment(level, order[i])].emplace_back(
            static_cast<double>(i) / static_cast<double>(order.size()), order[i]);
    }
    for (size_t i = 0; i < orders.size(); ++i) {
      std::ranges::stable_sort(placed[i], {}, &std::pair<double, int>::first);
      unsigned group = 0;
      for (auto begin = placed[i].begin(); begin != placed[i].end(); ++group) {
        const auto end = std::find_if(begin, placed[i].end(),
                                      [&](const auto& each) { return each.first != begin->first; });
        const bool are_two = end - begin == 2 && geometry == Geometry::disjoint;
        if (are_two && begins_with_second(group)) std::iter_swap(begin, begin + 1);
        for (; begin != end; ++begin) orders[i].push_back(begin->second);
      }
    }
  }
  return all;
}

std::vector<int> Levels::members(int level, int segment) const {
  std::vector<int> found;
  for (int rank = 0; rank < ranks(); ++rank)
    if (this->segment(level, rank) == segment) found.push_back(rank);
  return found;
}

int Levels::most_ranks(int level) const {
  size_t most = 0;
  for (const std::vector<int>& segment : deal_orders_.front().at(level - 1))
    most = std::max(most, segment.size());
  return static_cast<int>(most);
}

Levels levels_of(const std::vector<int>& servers, const std::vector<int>& racks,
                 std::optional<int> wanted) {
  PECIA_CHECK(!servers.empty() && servers.size() == racks.size(), "{} servers, {} racks",
              servers.size(), racks.size());
  const auto ranks = static_cast<int>(servers.size());
  std::vector<std::vector<int>> levels{alone(ranks)};
  for (std::vector<int> join :
       {runs_of(servers, racks), runs_of(racks, racks), std::vector<int>(ranks)})
    if (count_of(join) < count_of(levels.back())) levels.push_back(std::move(join));
  if (wanted) {
    PECIA_CHECK(*wanted >= 1, "{} levels", *wanted);
    const auto most = static_cast<size_t>(*wanted);
    if (most == 1) levels.resize(1);
    if (levels.size() > most) levels.erase(levels.begin() + *wanted - 1, levels.end() - 1);
    while (levels.size() < most && levels.size() > 1) {
      const auto most_parts = [&](size_t upper) {
        return std::ranges::max(parts_of(levels[upper - 1], levels[upper]));
      };
      size_t widest = 1;
      for (size_t upper = 2; upper < levels.size(); ++upper)
        if (most_parts(upper) > most_parts(widest)) widest = upper;
      if (most_parts(widest) <= 2) break;
      levels.insert(levels.begin() + static_cast<std::ptrdiff_t>(widest),
                    between(levels[widest - 1], levels[widest]));
    }
  }
  return {ranks, {levels.begin() + 1, levels.end()}};
}

double LevelRule::kept(int level) const {
  PECIA_CHECK(level >= 1 && drop >= 0 && drop < 1, "level {} with drop {}", level, drop);
  if (level == 1 || drop == 0) return 1;
  return std::ldexp(1 - drop, 2 - level);
}

double LevelRule::kept_keys(int level, int64_t head) const {
  if (key_drops.empty()) return kept(level);
  return LevelRule{geometry, key_drops.at(static_cast<size_t>(head))}.kept(level);
}

std::string to_string(const Micros& micros) {
  std::string text;
  for (const int micro : micros) text += (text.empty() ? "" : ", ") + std::to_string(micro);
  return text;
}

double mean_drop(const LayerDrops& layers) {
  double sum = 0, count = 0;
  for (size_t place = 1; place + 1 < layers.size(); ++place) {
    const std::vector<double>& heads = layers[place];
    sum += std::accumulate(heads.begin(), heads.end(), 0.0) / static_cast<double>(heads.size());
    ++count;
  }
  return count > 0 ? sum / count : 0;
}

LevelRule SparseSetting::rule_of(int64_t place, int64_t layers, int64_t first_head,
                                 int64_t heads) const {
  if (place == 0 || place + 1 == layers || rule.drop == 0) return {rule.geometry, 0};
  if (layer_drops.empty()) return rule;
  PECIA_CHECK(std::ssize(layer_drops) == layers, "shares of {} layers for {}", layer_drops.size(),
              layers);
  const std::vector<double>& shares = layer_drops[static_cast<size_t>(place)];
  if (shares.size() == 1) return {rule.geometry, shares.front()};
  PECIA_CHECK(std::ssize(shares) >= first_head + heads, "shares of {} heads, and head {}",
              shares.size(), first_head + heads - 1);
  LevelRule of{rule.geometry, 0};
  of.drop = std::accumulate(shares.begin(), shares.end(), 0.0) / static_cast<double>(shares.size());
  of.key_drops.assign(shares.begin() + first_head, shares.begin() + first_head + heads);
  return of;
}

namespace {

int64_t share_of(double kept, int64_t tokens) {
  return static_cast<int64_t>(std::ceil(kept * static_cast<double>(tokens)));
}

}  // namespace

int64_t kept_cached(const LevelRule& rule, int level, const PartTokens& part, int64_t head) {
  return std::max(share_of(rule.kept_keys(level, head), part.cached), part.first_cached);
}

int64_t kept_row_keys(const LevelRule& rule, int level, const PartTokens& part, int64_t head) {
  return std::max(share_of(rule.kept_keys(level, head), part.rows),
                  std::min(part.rows, part.first + part.last));
}

int64_t kept_rows(const LevelRule& rule, int level, const PartTokens& part) {
  return std::max(share_of(rule.kept(level), part.rows),
                  std::min(part.rows, part.first + part.last));
}

Seen seen_at(const Levels& levels, const LevelRule& rule, int level, int query, int key) {
  PECIA_CHECK(level >= 2, "level {} joins no parts", level);
  if (query == key || !levels.together(level, query, key)) return {};
  if (rule.geometry == Geometry::disjoint && levels.together(level - 1, query, key)) return {};
  return {true, key < query};
}

}  // namespace pecia::parallel
