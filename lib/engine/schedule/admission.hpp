// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The policy of memory: which requests and branches have room to begin, and where.
///
/// With kv.admission: reserve, a request reserves the slots of its prompt and of its longest answer
/// when it begins, so nothing that runs has to give way. With kv.admission: demand see demand.hpp.
///
/// Where slots are reserved, a fork's shared prefix keeps its keys until its last branch has ended,
/// and one of its branches computes in each pass until then. Slots for one branch, its credit, are
/// kept back together with the prefix's; the place that the prefix or a branch leaves goes to the
/// next branch first.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lib/engine/schedule/demand.hpp"
#include "lib/engine/schedule/slot_places.hpp"

namespace pecia::schedule {

/// Slots of a sequence that begins, by instance.
struct Grant {
  Slots reserved;
  Slots credit = {};       ///< of a request: kept back for one of its branches at a time
  bool on_credit = false;  ///< of a branch: its slots are of its fork's credit
  int64_t room = 0;        ///< ActiveSequence::room
  Slots prefix = {};       ///< of a branch on demand: of its prefix, where that has yielded
  Slots reading = {};      ///< of a prompt that others read, until then; empty: `reserved` has it
};

class Admission {
 public:
  explicit Admission(const SchedulerLimits& limits);

  /// The slots of a waiting request, which are no longer free in `left` then; absent: it waits.
  std::optional<Grant> request(const SchedulerState& state, const RequestState& request,
                               Room& left) const;
  /// What a request has that begins with these slots.
  Grant grant_of(const SchedulerState& state, const RequestState& request,
                 const Slots& slots) const;
  /// The slots of the fork's next branch: of its credit, or else free ones; absent: it waits.
  std::optional<Grant> branch(const SchedulerState& state, const RequestState& fork) const;
  /// Whether others may begin before a request that cannot begin now. They may if it only waits for
  /// an instance, but they do not take slots that it waits for.
  bool may_be_overtaken(const SchedulerState& state, const RequestState& request,
                        const Room& left) const;

  /// Whether the next pass could begin all waiting requests and one more that needs `slots` for
  /// `tokens` prompt tokens; or, where requests are to wait least, whether there are slots for all.
  bool has_room(const SchedulerState& state, int64_t slots, int64_t tokens) const;
  /// What is done where sequences get memory as they grow.
  const Demand& demand() const { return demand_; }
  /// The slots with which a request begins: of a fork with its largest branch.
  int64_t to_begin(const SchedulerState& state, const batch::Request& request) const;
  /// Whether each of its turns could run if the request had all slots to itself.
  bool fits(const SchedulerState& state, const batch::Request& request) const;
  /// The open turns that could not, and why: of a chain all, of a fork whole branches.
  std::vector<std::pair<size_t, std::string>> too_large(const SchedulerState& state,
                                                        const batch::Request& request) const;

 private:
  int64_t room_of(const SchedulerState& state, const batch::Request& request,
                  std::span<const batch::Turn> turns) const;
  int64_t of_branch(const SchedulerState& state, const batch::Request& request, size_t turn) const;
  int64_t free_for_one(const Slots& free) const;
  bool reads_apart(const SchedulerState& state, const batch::Request& request) const;
  std::optional<Grant> take(Room& left, int64_t slots, std::optional<int64_t> reading,
                            int64_t tokens, double due_s) const;

  std::unique_ptr<SlotPlaces> places_;
  Demand demand_;
  bool all_wait_least_;  ///< batch.objective: ttft
  bool elastic_;
  int first_answering_;  ///< instance; those before it only read
  int64_t most_ahead_;   ///< prompt tokens that wait, after which the next request is not begun
  const char* where_;    ///< slots are
};

}  // namespace pecia::schedule
