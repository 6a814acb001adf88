// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What instances have been told of sequences, where teams change. A rank knows only what plans of
/// its own teams brought, so a plan brings what its team does not know yet.

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "lib/engine/schedule/scheduler_state.hpp"

namespace pecia::schedule {

class ToldSequences {
 public:
  explicit ToldSequences(int instances) : unheard_(instances), moved_by_(instances) {}

  /// Tells instances of the plan's team of a sequence, and of its prefix, in the state before the
  /// pass. Call it before the state has the pass's tokens as cached.
  void introduce(const SchedulerState& state, ActiveSequence& sequence, Plan& plan);
  /// Tells those that receive keys of a sequence's copy of it, in the state before they come.
  void introduce_copy(const SchedulerState& state, int64_t copy, const std::vector<int32_t>& places,
                      Receiving& receiving);
  /// Notes that a sequence has ended or was forgotten, for the instances that know it. It may begin
  /// again, on other ones too.
  void forget(int64_t sequence);
  /// Notes that a sequence is parked, for the instances that know it: those that hold keys park
  /// them. The others forget it, unless they know sequences that begin with it.
  void park(const SchedulerState& state, int64_t sequence);
  /// Notes that the sequence's last pass had drafted tokens that are no part of it.
  void shorten(int64_t sequence);
  /// Notes that instances which know the sequence are none of its own any more.
  void leave(const ActiveSequence& sequence);
  /// Tells the plan's team what its instances have to forget or to park, children before their
  /// prefixes; and those that receive keys.
  void tell_what_left(const SchedulerState& state, Plan& plan);

  /// Tokens whose keys the plans moved since the last call. What an instance parks as it receives keys
  /// counts as busy time of the next team that has it.
  struct Moved {
    int64_t parked = 0, returned = 0;
    int64_t on_busiest = 0;  ///< instance of the team
  };
  Moved take_moved(const parallel::Team& team);

 private:
  enum class Leaves : uint8_t { forgotten, parked };
  struct Told {
    /// By instance: it was told of it; it has its present state; it has its keys parked; it has drafted
    /// tokens that are no part of it.
    std::vector<bool> ever, now, parked, longer;
  };
  Told& told_of(int64_t sequence);
  void tell_length(const SchedulerState& state, int64_t sequence, int32_t instance, Plan& plan);
  void tell_that_it_parks(const SchedulerState& state, int64_t sequence, int32_t instance,
                          Plan& plan, std::vector<LeftInstance>& left);
  void bring_back(const SchedulerState& state, int64_t sequence, Plan& plan);

  std::map<int64_t, Told> told_;  ///< by sequence
  /// By instance: the sequences that it must hear have left it, children before their prefixes.
  std::vector<std::map<int64_t, Leaves, std::greater<>>> unheard_;
  int64_t parked_ = 0, returned_ = 0;  ///< tokens
  std::vector<int64_t> moved_by_;      ///< tokens, by instance
};

}  // namespace pecia::schedule
