// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/elastic_place.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "lib/base/core/error.hpp"

namespace pecia::schedule {

std::optional<int> place_of(const std::vector<InstanceRoom>& instances, int64_t slots, double due_s,
                            const PlacementLimits& limits) {
  const auto read_before = [&](const InstanceRoom& instance) {
    int64_t tokens = 0;
    for (const InstanceRoom::Prompt& prompt : instance.unread)
      if (prompt.due_s <= due_s) tokens += prompt.tokens;
    return tokens;
  };
  std::optional<int> chosen;
  std::pair<int64_t, int64_t> least;
  for (size_t i = 0; i < instances.size(); ++i) {
    const InstanceRoom& instance = instances[i];
    if (!instance.idle || instance.free_slots < slots || instance.sequences >= limits.sequences ||
        read_before(instance) >= limits.pass_tokens)
      continue;
    const std::pair cost(instance.sequences, -instance.free_slots);
    if (!chosen || cost < least) chosen = static_cast<int>(i), least = cost;
  }
  return chosen;
}

std::optional<std::vector<int64_t>> slots_on_fewest(int64_t slots,
                                                    const std::vector<int64_t>& free_slots,
                                                    int least, int most) {
  std::vector<size_t> order(free_slots.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(), [&](size_t i) { return free_slots[i]; });
  std::vector<int64_t> room;
  int64_t together = 0;
  const size_t limit = std::min(order.size(), static_cast<size_t>(most));
  while (room.size() < limit && (together < slots || std::ssize(room) < least)) {
    room.push_back(free_slots[order[room.size()]]);
    together += room.back();
  }
  if (together < slots) return {};
  const std::vector<int64_t> shares = shares_by_free_slots(slots, room);
  std::vector<int64_t> taken(free_slots.size());
  for (size_t i = 0; i < shares.size(); ++i) taken[order[i]] = shares[i];
  return taken;
}

std::optional<std::vector<int64_t>> grown_slots(std::vector<int64_t> has, int64_t slots,
                                                const std::vector<int32_t>& near,
                                                const std::vector<int64_t>& free_slots, int most) {
  int64_t more = slots - std::accumulate(has.begin(), has.end(), int64_t{0});
  if (more <= 0) return has;
  const auto alone =
      std::ranges::find_if(near, [&](int32_t instance) { return free_slots[instance] >= more; });
  if (alone != near.end()) {
    has[*alone] += more;
    return has;
  }
  const auto take = [&](int32_t instance) {
    const int64_t taken = std::min(more, free_slots[instance]);
    has[instance] += taken;
    more -= taken;
  };
  std::vector<int32_t> others;
  for (int32_t instance = 0; instance < std::ssize(free_slots); ++instance)
    if (std::ranges::count(near, instance) == 0) others.push_back(instance);
  std::ranges::stable_sort(others, std::ranges::greater(),
                           [&](int32_t instance) { return free_slots[instance]; });
  others.resize(std::min<size_t>(others.size(), std::max<int64_t>(0, most - std::ssize(near))));
  for (const int32_t instance : near) take(instance);
  for (const int32_t instance : others) take(instance);
  if (more > 0) return {};
  return has;
}

std::vector<int64_t> shares_by_free_slots(int64_t tokens, const std::vector<int64_t>& free_slots) {
  int64_t all = 0;
  for (const int64_t slots : free_slots) {
    PECIA_CHECK(slots >= 0, "{} free slots", slots);
    all += slots;
  }
  PECIA_CHECK(tokens >= 0 && tokens <= all, "{} tokens on {} free slots", tokens, all);
  std::vector<int64_t> shares(free_slots.size());
  if (tokens == 0) return shares;
  std::vector<int64_t> fraction(free_slots.size());  // times `all`
  for (size_t i = 0; i < shares.size(); ++i) {
    shares[i] = tokens * free_slots[i] / all;
    fraction[i] = tokens * free_slots[i] % all;
  }
  std::vector<size_t> order(shares.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return fraction[a] > fraction[b]; });
  const int64_t left = tokens - std::accumulate(shares.begin(), shares.end(), int64_t{0});
  for (int64_t i = 0; i < left; ++i) ++shares[order[i]];
  return shares;
}

}  // namespace pecia::schedule
