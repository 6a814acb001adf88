// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/slot_places.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lib/base/core/error.hpp"

namespace pecia::schedule {
namespace {

Slots free_of(const Room& room) {
  Slots free;
  for (const InstanceRoom& instance : room) free.push_back(instance.free_slots);
  return free;
}

/// Every instance has as many.
class EqualPlaces : public SlotPlaces {
 public:
  explicit EqualPlaces(const SchedulerLimits& limits) : instances_(limits.ring_size) {}

  std::optional<Slots> of_request(const Room& room, int64_t slots, double) const override {
    return among(slots, free_of(room));
  }
  std::optional<Slots> of_reading(const Room&, int64_t, double) const override {
    PECIA_CHECK(false, "prompts are read apart, without changing teams");
  }
  std::optional<Slots> of_branch(const SchedulerState&, const RequestState&, int64_t slots,
                                 Slots free) const override {
    return among(slots, free);
  }
  Slots first_of(int64_t slots, const Slots&) const override { return Slots(instances_, slots); }
  int64_t count(const Slots& slots) const override { return slots.front(); }
  std::optional<Slots> grown(const Slots& has, int64_t slots, const std::vector<int32_t>&,
                             const Slots& free) const override {
    if (!among(slots - has.front(), free)) return {};
    return Slots(instances_, slots);
  }
  std::optional<Slots> returned(const Slots&, int64_t slots, const std::vector<int32_t>&,
                                Slots free) const override {
    return among(slots, free);
  }

 private:
  std::optional<Slots> among(int64_t slots, const Slots& free) const {
    if (slots > *std::min_element(free.begin(), free.end())) return {};
    return Slots(instances_, slots);
  }

  int instances_;
};

/// Each sequence has its own instances. A request that fits into one waits for one that can read it.
/// Where it is read by others, its prompt does.
class ElasticPlaces : public SlotPlaces {
 public:
  explicit ElasticPlaces(const SchedulerLimits& limits)
      : limits_(limits),
        kv_tokens_(limits.kv_tokens),
        on_one_{(limits.max_sequences + limits.ring_size - 1) / limits.ring_size,
                limits.max_batch_tokens} {}

  std::optional<Slots> of_request(const Room& room, int64_t slots, double due_s) const override {
    const InstanceCount count = limits_.answering_instances();
    if (limits_.apart()) return on_fewest(slots, part_of(room, true), count);
    return count.least == 1 ? where_idle(room, slots, due_s, count) : on_fewest(slots, room, count);
  }
  std::optional<Slots> of_reading(const Room& room, int64_t slots, double due_s) const override {
    const InstanceCount count = limits_.reading_instances();
    const Room part = part_of(room, false);
    return count.least == 1 ? where_idle(part, slots, due_s, count) : on_fewest(slots, part, count);
  }
  /// The instances that the fork has already: its branches meet there in any case.
  std::optional<Slots> of_branch(const SchedulerState& state, const RequestState& fork,
                                 int64_t slots, Slots free) const override {
    for (int instance = 0; instance < std::ssize(free); ++instance)
      if (state.map.reserved(fork.prefix, instance) + fork.credit[instance] == 0)
        free[instance] = 0;
    const InstanceCount count = limits_.answering_instances();
    return slots_on_fewest(slots, free, count.least, count.most);
  }
  Slots first_of(int64_t slots, const Slots& from) const override {
    Slots first(from.size());
    for (size_t instance = 0; instance < from.size(); ++instance) {
      first[instance] = std::min(slots, from[instance]);
      slots -= first[instance];
    }
    PECIA_CHECK(slots == 0, "{} slots more than there are", slots);
    return first;
  }
  int64_t count(const Slots& slots) const override {
    return std::accumulate(slots.begin(), slots.end(), int64_t{0});
  }
  std::optional<Slots> grown(const Slots& has, int64_t slots, const std::vector<int32_t>& near,
                             const Slots& free) const override {
    const InstanceCount count = limits_.answering_instances();
    if (near.empty()) return slots_on_fewest(slots, free, count.least, count.most);
    return grown_slots(has, slots, near, free, count.most);
  }
  std::optional<Slots> returned(const Slots& held, int64_t slots, const std::vector<int32_t>& near,
                                Slots free) const override {
    free = without(std::move(free), held);
    if (std::ranges::min(free) < 0) return {};
    return grown(held, slots, near, free);
  }

 private:
  static std::optional<Slots> on_fewest(int64_t slots, const Room& room, InstanceCount count) {
    return slots_on_fewest(slots, free_of(room), count.least, count.most);
  }
  std::optional<Slots> where_idle(const Room& room, int64_t slots, double due_s,
                                  InstanceCount count) const {
    if (slots > kv_tokens_) return on_fewest(slots, room, count);
    const auto place = place_of(room, slots, due_s, on_one_);
    if (!place) return {};
    Slots taken(room.size());
    taken[*place] = slots;
    return taken;
  }
  /// The instances that answer, or that read, with the others' slots taken.
  Room part_of(Room room, bool answers) const {
    for (int instance = 0; instance < std::ssize(room); ++instance)
      if (limits_.answers(instance) != answers) room[instance].free_slots = 0;
    return room;
  }

  SchedulerLimits limits_;
  int64_t kv_tokens_;
  PlacementLimits on_one_;
};

}  // namespace

std::unique_ptr<SlotPlaces> make_slot_places(const SchedulerLimits& limits) {
  if (limits.elastic) return std::make_unique<ElasticPlaces>(limits);
  return std::make_unique<EqualPlaces>(limits);
}

}  // namespace pecia::schedule
