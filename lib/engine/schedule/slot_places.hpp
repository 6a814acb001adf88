// SPDX-License-Identifier: Apache-2.0
#pragma once
/// On which instances a sequence has its KV slots. Without changing teams they are the same number
/// on each; where teams change, each sequence has instances of its own (elastic_place.hpp).

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lib/engine/schedule/scheduler_state.hpp"

namespace pecia::schedule {

class SlotPlaces {
 public:
  virtual ~SlotPlaces() = default;

  /// Where a waiting request takes `slots` slots; absent: it waits. `due_s`: RequestState::due_s.
  virtual std::optional<Slots> of_request(const Room& room, int64_t slots, double due_s) const = 0;
  /// Where a prompt takes `slots` slots until it is read, whose answer is elsewhere; absent: it waits.
  virtual std::optional<Slots> of_reading(const Room& room, int64_t slots, double due_s) const = 0;
  /// Where the fork's next branch takes `slots` of the `free` slots; absent: they are not there.
  virtual std::optional<Slots> of_branch(const SchedulerState& state, const RequestState& fork,
                                         int64_t slots, Slots free) const = 0;
  /// The first `slots` of these slots. Requires that there are as many.
  virtual Slots first_of(int64_t slots, const Slots& from) const = 0;

  /// How many these are as a sequence counts them (ActiveSequence::base): on each instance, or, where
  /// teams change, on all together.
  virtual int64_t count(const Slots& slots) const = 0;
  /// The slots of a sequence that has `has` and is to have `slots` in all; absent: they are not free.
  /// `near`: its instances and those of its prefix, in the order in which further slots are taken
  /// there.
  virtual std::optional<Slots> grown(const Slots& has, int64_t slots,
                                     const std::vector<int32_t>& near, const Slots& free) const = 0;
  /// The slots of a sequence that has none and is to have `slots`, with which its keys come back to
  /// the instances that `held` them; absent: they are not free.
  virtual std::optional<Slots> returned(const Slots& held, int64_t slots,
                                        const std::vector<int32_t>& near, Slots free) const = 0;
};

std::unique_ptr<SlotPlaces> make_slot_places(const SchedulerLimits& limits);

}  // namespace pecia::schedule
