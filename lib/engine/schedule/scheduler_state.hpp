// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a scheduler knows: which requests wait, which sequences are active, who has which KV slots,
/// which passes are under way. The state decides nothing. Policies read it, and the scheduler and
/// its Former change it as they were told. Internal to lib/engine/schedule.

#include <algorithm>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lib/engine/schedule/active_sequence.hpp"
#include "lib/engine/schedule/answer_lengths.hpp"
#include "lib/engine/schedule/demand_counts.hpp"
#include "lib/engine/schedule/draft_counts.hpp"
#include "lib/engine/schedule/drafter.hpp"
#include "lib/engine/schedule/elastic_place.hpp"
#include "lib/engine/schedule/known_times.hpp"
#include "lib/engine/schedule/plan.hpp"
#include "lib/engine/schedule/scheduler_limits.hpp"
#include "lib/engine/schedule/slot_needs.hpp"
#include "lib/engine/schedule/yields.hpp"
#include "lib/ranks/parallel/kv_map.hpp"

namespace pecia::schedule {

/// What has changed since ranks were last told.
struct News {
  std::vector<NewSequence> added;
  std::vector<TurnStart> turns;
  std::vector<int64_t> removed;  ///< sequences that ended
  std::vector<int64_t> parked;
  std::vector<ResizedSequence> returned, grown;
  std::vector<ShortenedSequence> shortened;

  bool adds(int64_t sequence) const {
    return std::ranges::count(added, sequence, &NewSequence::sequence) > 0;
  }
};

/// A pass that is not committed.
struct PassUnderWay {
  double begin_s = 0;
  int64_t moved_tokens = 0;  ///< whose keys leave the cache before it, or come back
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
  /// Likewise; sequences that have yielded. The map knows those that are parked, and not those that
  /// were forgotten.
  std::list<ActiveSequence> parked;

  parallel::KvMap map;
  Slots kept_back;  ///< slots that are free for branches of active forks alone

  int64_t next_pass = 0;
  std::map<int64_t, PassUnderWay> under_way;
  double last_commit_s = 0;  ///< where plans overlap: when the pass before ended
  std::vector<Doing> doing;  ///< by instance
  News news;

  /// Tokens that leave the cache or come back to it with the next pass; where teams change, on the
  /// instance that moves most.
  int64_t moving_tokens = 0;
  int64_t forced_pass = -1;  ///< the last one before which a sequence was made to yield for tests
  AnswerLengths lengths;
  Drafter drafter;
  DraftCounts draft_counts;
  DemandCounts demand;
  YieldJournal yields;
  std::vector<batch::Finished> finished;  ///< turns whose results nobody has taken yet
  batch::Sharing sharing;
  bool any_done = false;  ///< this start has finished a turn

  /// Refuses the turn, unless it is finished; of one that reads a continuation, the turn that has it.
  void refuse(batch::Request& request, batch::Turn& turn, const std::string& why);
  /// Refuses the turn and all later turns that see it. A later turn keeps a reason of its own.
  void refuse_from(batch::Request& request, size_t first, const std::string& why);

  /// Lets a request begin, with these slots for a chain or a fork's prefix. `credit`: slots for one
  /// branch of a fork at a time, which are kept back for it. `room`: ActiveSequence::room. `reading`:
  /// where others read its prompt, their slots until then.
  void begin(const std::shared_ptr<RequestState>& request, const Slots& reserved,
             const Slots& credit, int64_t room = 0, const Slots& reading = {});
  /// The sequence's prompt has been read by others: it goes on as its copy.
  void go_on_as_copy(ActiveSequence& sequence);
  /// Lets the fork's next branch begin. `on_credit`: its slots are of the fork's credit.
  void begin_branch(const std::shared_ptr<RequestState>& fork, const Slots& reserved,
                    bool on_credit, int64_t room = 0);
  /// Counts the slots of an answer that has ended to what stands before the next turn.
  void end_answer(ActiveSequence& sequence) const;
  /// Gives a sequence more slots.
  void grow(ActiveSequence& sequence, const Slots& reserved);
  /// Puts a sequence among the parked ones: its keys leave the cache.
  void park(std::list<ActiveSequence>::iterator sequence);
  /// Takes a sequence back that has yielded, with these slots.
  void bring_back(std::list<ActiveSequence>::iterator sequence, const Slots& reserved);
  /// Lets the keys of a fork's prefix leave the cache.
  void park_prefix(const RequestState& fork);
  void bring_prefix_back(const RequestState& fork, const Slots& reserved);
  /// Lets keys of an active sequence move from an instance to another, where it gets as many slots
  /// as it has there and `more`. They move with its next token.
  void move(ActiveSequence& sequence, int32_t from, int32_t to, int64_t more);

  /// Drops the keys of an active sequence, which reads its tokens again when it is back.
  void forget(std::list<ActiveSequence>::iterator sequence);
  /// Drops the keys of a fork's prefix, and of its branches that are parked.
  void forget_prefix(const RequestState& fork);
  /// Lets such a prefix be read again, as an active sequence until that is done.
  void read_prefix_again(const std::shared_ptr<RequestState>& fork, const Slots& reserved);
  /// Takes in that a sequence has read this number of tokens again. Returns whether that was all.
  bool has_read_again(ActiveSequence& sequence, int64_t tokens);
  /// Sets up the sequence's turn: what to feed, where the answer begins, how long it may be. A turn
  /// that cannot run is refused with all that depend on it; then `begun` stays false.
  void start_turn(ActiveSequence& sequence);
  /// Notes the item's tokens as cached, which holds when the pass has run.
  void cache(ActiveSequence& sequence, const PlanItem& item, const parallel::Team& team);
  /// Drops the last `tokens` of the item, which were drafted and are no part of the answer. Where the
  /// sequence has a state, that goes back to before the item, and the item's other tokens replay.
  void drop_drafted(ActiveSequence& sequence, const PlanItem& item, int64_t tokens);
  /// Takes in that a pass has computed the first of the sequence's `replays` again, and nothing else.
  static void has_replayed(ActiveSequence& sequence, int64_t tokens);
  /// The sequence takes part in no more passes. Frees its slots, and the prefix's with a fork's last
  /// branch; lets a prefix's branches begin.
  void end(std::list<ActiveSequence>::iterator sequence);
  /// Puts a chain or prefix of which nothing was answered among the late ones, and frees its slots.
  void give_back(int64_t sequence);

  /// Throws InvalidArgument unless the map has the sequences that are active or parked and the
  /// prefixes of forks, with the tokens that are known of them, and the slots are free or reserved
  /// once. Between passes.
  void verify() const;

  /// Unfinished turns that have generated tokens, as partial results.
  std::vector<batch::Finished> partial() const;
  /// Slots that nobody has reserved and that are not kept back, by instance.
  Slots free_slots() const;
  /// Whether keys are parked there, where teams change: they come back before anything else begins
  /// there.
  bool awaits_return(int32_t instance) const;
  /// Whether nothing may begin before what has yielded is back.
  bool all_await_return() const;
  /// What the sequence has reserved, and its own tokens that are cached or parked, by instance.
  Slots reserved(int64_t sequence) const;
  Slots held(int64_t sequence) const;
  /// Whether none of these instances is in a pass, where teams change.
  bool all_idle(const std::vector<int32_t>& instances) const;
  Room room() const;
  /// Cached or parked tokens of the sequence, with those that it begins with; of one that was
  /// forgotten only the latter.
  int64_t length(const ActiveSequence& sequence) const;
  /// Cached or parked tokens of the sequence, without those that it begins with.
  int64_t own_tokens(int64_t sequence) const;
  /// Tokens that move when the sequence is parked or comes back, with what its state counts for.
  /// Where teams change, on the instance that has most of them.
  int64_t moved_by(int64_t sequence) const;
  /// Instances with slots of the sequence, or with tokens that it begins with, in ascending order.
  std::vector<int32_t> instances_of(int64_t sequence) const;
  /// Whether log-probabilities of the turn's own tokens are wanted.
  bool weighs_tokens(const batch::Turn& turn) const {
    return !turn.finished && turn.continuation < 0 &&
           (limits.prompt_logprobs != 0 || weighs_itself(turn));
  }
  /// Sequences of which ranks may have drafted tokens that are no part of them. Where teams change,
  /// ranks hear with the next pass of a sequence.
  std::vector<ShortenedSequence> shortened() const;
  /// Counts the forks that have begun and not ended.
  int64_t forks_under_way() const;
  /// Turns of which this holds, and whose first token comes right after the prompt of the sequence's
  /// turn.
  std::vector<size_t> followers(const ActiveSequence& sequence) const;

 private:
  std::vector<int32_t>* known_tokens(ActiveSequence& sequence) const;
  void activate(ActiveSequence sequence, const Slots& reserved, int64_t room,
                const Slots& reading = {});
  void keep_back(RequestState& fork, const Slots& slots);
  /// Lets keys leave the cache; `row`: as in Yield. Returns false where ranks do not hear of it,
  /// since they have not heard yet that they were to come back.
  bool park_keys(int64_t sequence, int64_t row);
  void bring_keys_back(int64_t sequence, int64_t row, const Slots& reserved);
  void introduce(const ActiveSequence& sequence, const Slots& reserved);
  void put_back(std::list<ActiveSequence>::iterator sequence);
  void moved(ActiveSequence& sequence) const;
  static void leave_team(ActiveSequence& sequence);
  void tell_of_turn(const ActiveSequence& sequence);
  void drop(ActiveSequence& sequence);
  static void read_replays_again(ActiveSequence& sequence, std::vector<int32_t>& tokens);
  void bring_forgotten_back(std::list<ActiveSequence>::iterator sequence, const Slots& reserved);
  void plan_rereading(ActiveSequence& sequence, std::vector<int32_t> tokens) const;
  void remove(int64_t sequence);
  void refuse(batch::Turn& turn, const std::string& why);

  int64_t next_sequence_ = 0;
};

/// `slots` less `taken`, by instance.
Slots without(Slots slots, const Slots& taken);

/// Takes in the `outcomes` of all ranks of the plan's teams at `now`. Returns by item how many tokens
/// its answer got.
std::vector<int64_t> commit(SchedulerState& state, const Plan& plan,
                            const std::vector<Outcome>& outcomes, double now);

}  // namespace pecia::schedule
