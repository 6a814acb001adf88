// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a scheduler knows: which requests wait, which sequences are active, who has which KV slots,
/// which passes are under way. The state decides nothing. Policies read it, and the scheduler and
/// its Former change it as they were told. Internal to lib/engine/schedule.

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lib/engine/schedule/active_sequence.hpp"
#include "lib/engine/schedule/answer_lengths.hpp"
#include "lib/engine/schedule/demand_counts.hpp"
#include "lib/engine/schedule/elastic_place.hpp"
#include "lib/engine/schedule/known_times.hpp"
#include "lib/engine/schedule/plan.hpp"
#include "lib/engine/schedule/scheduler_limits.hpp"
#include "lib/engine/schedule/slot_needs.hpp"
#include "lib/ranks/parallel/kv_map.hpp"

namespace pecia::schedule {

/// What has changed since ranks were last told.
struct News {
  std::vector<NewSequence> added;
  std::vector<TurnStart> turns;
  std::vector<int64_t> removed;  ///< sequences that ended
  std::vector<int64_t> parked;
  std::vector<ResizedSequence> returned, grown;
};

/// What an instance does in the pass in which it is, where teams change.
enum class Doing : uint8_t { nothing, prompts, answers };

/// What is left for requests that begin now, by instance.
using Room = std::vector<InstanceRoom>;

struct SchedulerState {
  explicit SchedulerState(SchedulerLimits limits);

  const SchedulerLimits limits;
  const SlotNeeds needs;
  KnownTimes times;

  std::deque<std::shared_ptr<RequestState>> waiting;
  std::deque<std::shared_ptr<RequestState>> late;  ///< that would not be answered in time
  std::list<std::shared_ptr<RequestState>> forks;  ///< with a prefix, and branches still to begin
  std::list<ActiveSequence> active;                ///< in the order in which they began
  std::list<ActiveSequence> parked;                ///< likewise; of active requests

  parallel::KvMap map;
  Slots kept_back;  ///< slots that are free for branches of active forks alone

  int64_t next_pass = 0;
  std::map<int64_t, double> under_way;  ///< passes that are not committed, and when they began
  std::vector<Doing> doing;             ///< by instance
  News news;

  AnswerLengths lengths;
  DemandCounts demand;
  std::vector<batch::Finished> finished;  ///< turns whose results nobody has taken yet
  batch::Sharing sharing;
  bool any_done = false;  ///< this start has finished a turn

  /// Refuses the turn, unless it is finished.
  void refuse(batch::Turn& turn, const std::string& why);
  /// Refuses the turn and all later turns that see it. A later turn keeps a reason of its own.
  void refuse_from(batch::Request& request, size_t first, const std::string& why);

  /// Lets a request begin, with these slots for a chain or a fork's prefix. `credit`: slots for one
  /// branch of a fork at a time, which are kept back for it. `room`: ActiveSequence::room.
  void begin(const std::shared_ptr<RequestState>& request, const Slots& reserved,
             const Slots& credit, int64_t room = 0);
  /// Lets the fork's next branch begin. `on_credit`: its slots are of the fork's credit.
  void begin_branch(const std::shared_ptr<RequestState>& fork, const Slots& reserved,
                    bool on_credit, int64_t room = 0);
  /// Counts the slots of an answer that has ended to what stands before the next turn.
  void end_answer(ActiveSequence& sequence) const;
  /// Gives a sequence more slots.
  void grow(ActiveSequence& sequence, const Slots& reserved);
  /// Puts a sequence among the parked ones: its keys leave the cache.
  void park(std::list<ActiveSequence>::iterator sequence);
  /// Takes a parked sequence back, with these slots.
  void bring_back(std::list<ActiveSequence>::iterator sequence, const Slots& reserved);
  /// Lets keys leave the cache: of a sequence that is not active, as the prefix of a fork. Returns
  /// false where ranks do not hear of it, since they have not heard yet that it was to come back.
  bool park_keys(int64_t sequence);
  void bring_prefix_back(const RequestState& fork);
  /// Sets up the sequence's turn: what to feed, where the answer begins, how long it may be. A turn
  /// that cannot run is refused with all that depend on it; then `begun` stays false.
  void start_turn(ActiveSequence& sequence);
  /// Notes the item's tokens as cached, which holds when the pass has run.
  void cache(ActiveSequence& sequence, const PlanItem& item, const parallel::Team& team);
  /// The sequence takes part in no more passes. Frees its slots, and the prefix's with a fork's last
  /// branch; lets a prefix's branches begin.
  void end(std::list<ActiveSequence>::iterator sequence);
  /// Puts a chain or prefix of which nothing was answered among the late ones, and frees its slots.
  void give_back(int64_t sequence);

  /// Unfinished turns that have generated tokens, as partial results.
  std::vector<batch::Finished> partial() const;
  /// Slots that nobody has reserved and that are not kept back, by instance.
  Slots free_slots() const;
  Room room() const;
  /// Cached or parked tokens of the sequence, without those that it begins with.
  int64_t own_tokens(int64_t sequence) const;
  /// Instances with slots of the sequence, or with tokens that it begins with, in ascending order.
  std::vector<int32_t> instances_of(int64_t sequence) const;
  /// Turns whose first token comes right after the prompt of the sequence's turn.
  std::vector<size_t> followers(const ActiveSequence& sequence) const;

 private:
  void activate(ActiveSequence sequence, const Slots& reserved, int64_t room);
  void keep_back(RequestState& fork, const Slots& slots);
  void bring_keys_back(int64_t sequence, const Slots& reserved);
  void remove(int64_t sequence);

  int64_t next_sequence_ = 0;
};

/// `slots` less `taken`, by instance.
Slots without(Slots slots, const Slots& taken);

/// Takes in the `outcomes` of all ranks of the plan's teams at `now`.
void commit(SchedulerState& state, const Plan& plan, const std::vector<Outcome>& outcomes,
            double now);

}  // namespace pecia::schedule
