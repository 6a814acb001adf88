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
};

std::unique_ptr<SlotPlaces> make_slot_places(const SchedulerLimits& limits);

}  // namespace pecia::schedule
