// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The policy of memory on demand (kv.admission: demand). A turn begins with slots for its prompt
/// and for a likely answer (AnswerLengths::likely), and grows by blocks. Where no block is free a
/// sequence yields: its keys are parked outside the cache and come back later, or it is forgotten
/// and reads its tokens again. It is parked where there is room for its keys and they are expected
/// to be back sooner than read.
///
/// - A request of which the cache holds max_sequences with their longest answers begins each turn
///   with slots for its longest answer: nothing is gained by less.
/// - It yields whose return is cheapest, by expected seconds. A sequence that came back yields only
///   where all others have come back, too.
/// - Where teams change, a sequence takes further slots on its own instances, and has to be in no pass,
///   nor any other on these. Where they are full and another instance has slots, it grows there
///   (scale-up), or keys move there to make room: what is expected to take less time. Only where no
///   instance has room does a sequence yield, one of those on its instances.
/// - The sequence that began first of those with keys in the cache never yields, so it comes to its
///   end, and no two sequences can push each other out for ever.
/// - Sequences that have yielded come back in the order in which they began, before anything new
///   begins.
/// - The prefix of a fork yields only where all its branches have and nothing else can go on.
///
/// Slots here are on each rank, the same number on each; where teams change, on all instances
/// together. Internal to lib/engine/schedule.

#include <cstdint>
#include <memory>
#include <optional>

#include "lib/engine/schedule/slot_places.hpp"

namespace pecia::schedule {

class Demand {
 public:
  explicit Demand(const SchedulerLimits& limits)
      : places_(make_slot_places(limits)),
        on_(limits.on_demand),
        block_(limits.block),
        forced_yields_(limits.forced_yields) {}

  bool on() const { return on_; }
  /// Tokens of the answer that the request's turn has slots for when it begins, without those that an
  /// earlier start has given.
  int64_t first_room(const SchedulerState& state, const batch::Request& request,
                     const batch::Turn& turn) const;

  /// Slots of a sequence that begins or comes back, by instance.
  struct Places {
    Slots own;
    Slots prefix;  ///< of the prefix that it begins with, where that has yielded
  };
  /// Where the fork's next branch has `slots`; absent: it waits.
  std::optional<Places> of_branch(const SchedulerState& state, const RequestState& fork,
                                  int64_t slots) const;

  /// Gives each sequence whose answer has used up its slots a block, in the order in which they
  /// began. Those for which there is none may yield themselves.
  void grow(SchedulerState& state) const;
  /// Takes sequences back that have yielded, as long as there are slots.
  void bring_back(SchedulerState& state) const;
  /// Gives a sequence the slots of its next turn, which is about to begin. False: it has to wait.
  bool begin_turn(SchedulerState& state, ActiveSequence& sequence) const;
  /// Lets the prefix of a fork yield of which nothing else is in the cache, but not of the fork that
  /// goes on first. False: there is none.
  bool yield_a_prefix(SchedulerState& state) const;

 private:
  bool extend(SchedulerState& state, ActiveSequence& sequence, int64_t slots) const;
  std::optional<Places> of_return(const SchedulerState& state, const ActiveSequence& sequence,
                                  int64_t slots) const;
  std::optional<Slots> of_prefix(const SchedulerState& state, const RequestState& fork) const;
  std::list<ActiveSequence>::iterator victim(SchedulerState& state,
                                             const ActiveSequence& sequence) const;
  int64_t room_to_return(const SchedulerState& state, const ActiveSequence& sequence) const;
  void yield(SchedulerState& state, std::list<ActiveSequence>::iterator sequence) const;
  void force_yield(SchedulerState& state) const;

  std::unique_ptr<const SlotPlaces> places_;
  bool on_;
  int64_t block_;
  std::optional<uint64_t> forced_yields_;
};

}  // namespace pecia::schedule
