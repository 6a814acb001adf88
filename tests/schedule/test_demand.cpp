// SPDX-License-Identifier: Apache-2.0
/// Memory on demand: what begins with which slots, who grows, who yields, who comes back.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "lib/engine/schedule/demand.hpp"
#include "lib/engine/schedule/keepable_kv.hpp"
#include "lib/engine/schedule/scheduler.hpp"
#include "tests/schedule/fake_replica.hpp"
#include "tests/schedule/fake_teams.hpp"
#include "tests/schedule/small_state.hpp"

namespace pecia::test {
namespace {

using schedule::Admission;
using schedule::Demand;
using schedule::SchedulerLimits;
using schedule::SchedulerState;
using schedule::Slots;

SchedulerLimits demanding(int64_t kv_tokens, int64_t block = 10) {
  SchedulerLimits limits = small_limits(1, kv_tokens);
  limits.on_demand = true;
  limits.block = block;
  return limits;
}

/// A request that has begun, with its prompt cached and `room` slots for its answer.
schedule::ActiveSequence& running(SchedulerState& state, int64_t prompt, int64_t room,
                                  int32_t most = 100) {
  state.begin(state_of(ask(0, prompt, most)), {prompt + room}, {0}, room);
  schedule::ActiveSequence& sequence = state.active.back();
  state.start_turn(sequence);
  read(state, sequence, prompt);
  state.news = {};  // ranks have heard of it
  return sequence;
}

std::vector<int64_t> ids_of(const std::list<schedule::ActiveSequence>& sequences) {
  std::vector<int64_t> ids;
  for (const auto& sequence : sequences) ids.push_back(sequence.id);
  return ids;
}

TEST(Demand, BeginsWithWhatAnswersHaveNeededSoFar) {
  SchedulerState state(demanding(1000));
  const Demand demand(state.limits);
  const batch::Request asked = ask(0, 30, 160);
  const batch::Turn& turn = asked.turns.front();
  EXPECT_EQ(demand.first_room(state, asked, turn), 10) << "a sixteenth, as nothing is known";
  for (int answer = 0; answer < 8; ++answer) state.lengths.add(turn, 30 + answer, 160);
  EXPECT_EQ(demand.first_room(state, asked, turn), 40) << "half of them had 34 or fewer";
  const batch::Request small = ask(0, 30, 90);
  EXPECT_EQ(demand.first_room(state, small, small.turns.front()), 90)
      << "the memory has 125 for each of 8 at a time";
  const Admission admission(state.limits);
  schedule::Room left = state.room();
  const auto grant = admission.request(state, *state_of(ask(1, 30, 160)), left);
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->reserved, (Slots{30 + 40}));
  EXPECT_EQ(grant->room, 40);
}

TEST(Demand, GrowsByBlocksUpToTheLongestAnswer) {
  SchedulerState state(demanding(100));
  const Demand demand(state.limits);
  schedule::ActiveSequence& sequence = running(state, 30, 10, 25);
  demand.grow(state);
  EXPECT_TRUE(state.news.grown.empty()) << "it has slots yet";
  for (const int64_t room : {20, 25}) {
    sequence.decoded = sequence.room;
    demand.grow(state);
    EXPECT_EQ(sequence.room, room);
    EXPECT_EQ(state.map.reserved(sequence.id, 0), 30 + room);
    ASSERT_EQ(state.news.grown.size(), 1u);
    EXPECT_EQ(state.news.grown.front().reserved, (Slots{30 + room}));
  }
  EXPECT_EQ(state.demand.blocks, 2);
}

TEST(Demand, LetsTheSequenceYieldThatIsCheapestToTakeBack) {
  SchedulerState state(demanding(105));
  const Demand demand(state.limits);
  schedule::ActiveSequence& first = running(state, 10, 10);
  running(state, 40, 5), running(state, 30, 5);
  first.decoded = first.room;
  state.active.back().came_back = true;
  demand.grow(state);
  EXPECT_EQ(ids_of(state.parked), (std::vector<int64_t>{1}))
      << "the smaller one has yielded before, and the first one never does";
  EXPECT_EQ(state.news.parked, (std::vector<int64_t>{1}));
  EXPECT_EQ(first.room, 20);
  EXPECT_EQ(state.free_slots(), (Slots{105 - 30 - 35}));
  EXPECT_EQ(state.parked.front().result.yields, 1);

  demand.bring_back(state);
  EXPECT_EQ(state.parked.size(), 1u) << "not in the pass before which it yields";
  state.news = {};
  demand.bring_back(state);
  EXPECT_EQ(state.parked.size(), 1u) << "it needs 40 + 10";
  state.end(std::prev(state.active.end()));
  demand.bring_back(state);
  EXPECT_TRUE(state.parked.empty());
  EXPECT_EQ(ids_of(state.active), (std::vector<int64_t>{0, 1}))
      << "in the order of their beginning";
  EXPECT_TRUE(state.active.back().came_back);
  EXPECT_EQ(state.news.returned.front().reserved, (Slots{50}));
}

/// Lets the first of two sequences, of 20 and 30 tokens, grow where the second has to yield.
SchedulerState with_one_that_yields(const SchedulerLimits& limits) {
  SchedulerState state(limits);
  schedule::ActiveSequence& first = running(state, 10, 10, 30);
  schedule::ActiveSequence& second = running(state, 25, 10, 30);
  second.decoded = 5;
  read(state, second, 5);  // of its answer
  second.fed = 25;
  second.runs = {{25, false, 25, 0, 0}, {5, true, 25, 0, 0}};
  first.decoded = first.room;
  Demand(state.limits).grow(state);
  EXPECT_EQ(ids_of(state.parked), (std::vector<int64_t>{1}));
  EXPECT_EQ(state.parked.front().result.yields, 1);
  return state;
}

TEST(Demand, ForgetsWhereNoKeysCanBeParked) {
  SchedulerLimits limits = demanding(60);
  limits.parking_tokens = 29;
  SchedulerState state = with_one_that_yields(limits);
  EXPECT_EQ(state.news.removed, (std::vector<int64_t>{1}));
  EXPECT_TRUE(state.news.parked.empty());
  EXPECT_EQ(state.demand.forgotten, 1);
  EXPECT_FALSE(state.map.contains(1));
  state.news = {};
  state.end(state.active.begin());
  Demand(state.limits).bring_back(state);
  ASSERT_EQ(ids_of(state.active), (std::vector<int64_t>{1}));
  const schedule::ActiveSequence& back = state.active.front();
  EXPECT_EQ(state.news.adds(1), true);
  EXPECT_EQ(state.news.turns.size(), 1u) << "ranks have to hear how it is sampled";
  ASSERT_TRUE(back.again);
  EXPECT_EQ(back.unread(), 30) << "its answer is read with its prompt";
  EXPECT_EQ(back.base, 30);
  EXPECT_EQ(back.decoded, 0);
  EXPECT_EQ(state.map.reserved(1, 0), 40);
}

TEST(Demand, ParksWhatFits) {
  SchedulerLimits limits = demanding(60);
  limits.parking_tokens = 30;
  const SchedulerState state = with_one_that_yields(limits);
  EXPECT_EQ(state.news.parked, (std::vector<int64_t>{1}));
  EXPECT_EQ(state.map.total_parked(0), 30);
  EXPECT_EQ(state.demand.forgotten, 0);
}

TEST(Demand, CountsStatesWithTheKeysThatAreParked) {
  SchedulerLimits limits = demanding(60);
  limits.state_tokens = 7;
  limits.parking_tokens = 36;
  EXPECT_EQ(with_one_that_yields(limits).demand.forgotten, 1);
  limits.parking_tokens = 37;
  const SchedulerState state = with_one_that_yields(limits);
  EXPECT_EQ(state.news.parked, (std::vector<int64_t>{1}));
  EXPECT_EQ(state.moving_tokens, 37);
  EXPECT_EQ(state.demand.parked_tokens, 30);
  EXPECT_EQ(state.map.num_parked(), 1);
}

TEST(Demand, ForgetsWhatIsReadSoonerThanItsKeysAreBack) {
  SchedulerLimits limits = demanding(60);
  limits.pass_times = second_passes();
  for (const auto& [token_s, forgotten] : {std::pair(1. / 61, 0), std::pair(1. / 59, 1)}) {
    limits.parking_s = token_s;  // 30 tokens go and come
    EXPECT_EQ(with_one_that_yields(limits).demand.forgotten, forgotten) << token_s;
  }
}

TEST(Demand, GoesByTheSecondsOfEarlierParkings) {
  SchedulerState state(demanding(60));
  EXPECT_EQ(state.times.parking_s(10), 0) << "nothing is estimated";
  schedule::Outcome slow, fast;
  slow.park_s = 2, fast.park_s = 1;
  state.times.add_parking(100, {fast, slow});
  EXPECT_DOUBLE_EQ(state.times.parking_s(50), 1);
}

TEST(Demand, ComputesAllAsItWasWhereTheLayoutMustNotMatter) {
  SchedulerLimits limits = demanding(160);
  limits.parking_tokens = 0;
  limits.layout_invariant = true;
  SchedulerState state(limits);
  const int64_t prompt = state.needs.of_run({25, false, 25, 0, 0});
  schedule::ActiveSequence& sequence = running(state, 25, 10);
  sequence.decoded = 5;
  read(state, sequence, 5);
  sequence.fed = 25;
  sequence.runs = {{25, false, 25, 0, 0}, {5, true, 25, 0, 7}};
  state.forget(state.active.begin());
  const schedule::ActiveSequence& forgotten = state.parked.front();
  ASSERT_TRUE(forgotten.again);
  EXPECT_EQ(forgotten.again->runs.size(), 2u);
  EXPECT_EQ(forgotten.base, prompt);
  EXPECT_EQ(forgotten.decoded, 5);
  state.bring_back(state.parked.begin(), {160});
  schedule::ActiveSequence& back = state.active.front();
  EXPECT_EQ(back.unread(), 25);
  EXPECT_FALSE(state.has_read_again(back, 25));
  EXPECT_TRUE(back.can_decode());
  for (int token = 0; token < 4; ++token) EXPECT_FALSE(state.has_read_again(back, 1));
  EXPECT_TRUE(state.has_read_again(back, 1));
  EXPECT_FALSE(back.again);
  EXPECT_EQ(state.demand.reread_tokens, 30);
}

TEST(Demand, LetsTheOneThatNeedsSlotsYieldWhereThatIsCheapest) {
  SchedulerState state(demanding(60));
  const Demand demand(state.limits);
  running(state, 30, 10);
  schedule::ActiveSequence& second = running(state, 10, 10);
  second.decoded = second.room;
  demand.grow(state);
  EXPECT_EQ(ids_of(state.parked), (std::vector<int64_t>{1}));
  EXPECT_TRUE(state.news.grown.empty());
}

TEST(Demand, ParksThePrefixOfAForkWhenNothingElseIsLeft) {
  SchedulerState state(demanding(100));
  const Demand demand(state.limits);
  const auto fork = state_of(fork_of(50, {10, 10}));
  state.begin(fork, {50}, {0});
  state.start_turn(state.active.front());
  read(state, state.active.front(), 50);
  state.end(state.active.begin());
  schedule::ActiveSequence& other = running(state, 30, 20);
  EXPECT_TRUE(fork->branches_left());
  other.decoded = other.room;
  demand.grow(state);
  EXPECT_EQ(other.room, 30);
  EXPECT_EQ(state.free_slots(), (Slots{40}));
  EXPECT_TRUE(state.map.is_parked(fork->prefix));
  // The fork goes on when there is room for its prefix, too.
  const Admission admission(state.limits);
  EXPECT_FALSE(admission.branch(state, *fork));
  state.end(state.active.begin());
  EXPECT_TRUE(admission.branch(state, *fork));
}

TEST(Demand, ReadsTheForgottenPrefixOfAForkAgain) {
  SchedulerLimits limits = demanding(100);
  limits.parking_tokens = 0;
  std::vector<batch::Request> requests = {fork_of(50, {10, 10}), ask(10, 30, 60)};
  const Served served = serve(limits, requests);
  expect_same(served.rows, expected(limits, requests));
  int64_t readings = 0;
  for (const schedule::Plan& plan : served.plans) {
    EXPECT_TRUE(plan.parked.empty());
    for (const auto& item : plan.items) readings += item.rows.sequence == 0 && item.rows.first == 0;
  }
  EXPECT_GE(readings, 1);
}

TEST(Demand, TakesUpALaterTurnWhenThereAreSlotsForIt) {
  // Two chains of two turns; the memory holds one of them whole.
  SchedulerLimits limits = demanding(0);
  std::vector<batch::Request> chains;
  for (int64_t row : {0, 10}) {
    batch::Request chain = ask(row, 30, 20);
    chain.turns.push_back(ask(row + 1, 40, 20).turns.front());
    limits.kv_tokens = std::max(limits.kv_tokens, schedule::Scheduler(limits).tokens_needed(chain));
    chains.push_back(std::move(chain));
  }
  const Served served = serve(limits, chains);
  expect_same(served.rows, expected(limits, chains));
  const bool together = std::ranges::any_of(
      served.plans, [](const schedule::Plan& plan) { return plan.items.size() == 2; });
  EXPECT_TRUE(together) << "both begin, since each begins with its first turn alone";
  const bool yields =
      std::ranges::any_of(served.plans, [](const auto& plan) { return !plan.parked.empty(); });
  EXPECT_TRUE(yields);
}

TEST(Demand, KeysThatAreParkedCanBeKept) {
  SchedulerState state(demanding(1000));
  state.begin(state_of(ask(0, 20, 90)), {20 + 9}, {0}, 9);
  state.start_turn(state.active.front());
  read(state, state.active.front(), 20);
  state.news = {};
  ASSERT_EQ(keepable_kv(state).size(), 1u);
  EXPECT_TRUE(keepable_kv(state).front().reserved.empty());
  state.park(state.active.begin());
  ASSERT_EQ(keepable_kv(state).size(), 1u);
  const schedule::KeepableKv parked = keepable_kv(state).front();
  EXPECT_EQ(parked.tokens.size(), 20u);
  EXPECT_EQ(parked.reserved, (Slots{29}));
  EXPECT_EQ(parked.instances, (std::vector<int>{0}));
  state.news = {};
  state.bring_back(state.parked.begin(), {29});
  EXPECT_FALSE(keepable_kv(state).front().reserved.empty()) << "ranks have not heard of it";
  state.news = {};
  EXPECT_TRUE(keepable_kv(state).front().reserved.empty());
  state.forget(state.active.begin());
  EXPECT_TRUE(keepable_kv(state).empty());
}

/// Two instances whose teams change. The first has no slot left; the second has `free` ones.
SchedulerState with_a_full_instance(std::optional<schedule::TeamTimes> times, int64_t free) {
  SchedulerLimits limits = demanding(40);
  limits.ring_size = 2;
  limits.elastic = true;
  limits.team_times = std::move(times);
  limits.parking_s = 1e-3;
  SchedulerState state(limits);
  const auto begin = [&](int64_t row, const Slots& slots, int64_t prompt, int64_t room) {
    state.begin(state_of(ask(row, prompt, 100)), slots, {0, 0}, room);
    schedule::ActiveSequence& sequence = state.active.back();
    state.start_turn(sequence);
    read(state, sequence, prompt, slots[0] > 0 ? 0 : 1);
    sequence.changed = false;
  };
  begin(0, {28, 0}, 20, 8), begin(1, {12, 0}, 5, 7), begin(2, {0, 40 - free}, 3, 37 - free);
  state.news = {};
  state.active.front().decoded = 8;
  Demand(state.limits).grow(state);
  return state;
}

TEST(Demand, GrowsOnAnotherInstanceWhereItsOwnIsFull) {
  const SchedulerState state = with_a_full_instance({}, 15);
  const schedule::ActiveSequence& first = state.active.front();
  EXPECT_EQ(state.reserved(0), (Slots{28, 10}));
  EXPECT_EQ(first.instances, (std::vector<int32_t>{0, 1}));
  EXPECT_TRUE(first.changed) << "they have to hear of it";
  EXPECT_EQ(first.room, 18);
  EXPECT_EQ(state.demand.scale_ups, 1);
  EXPECT_TRUE(state.parked.empty());
}

TEST(Demand, MovesKeysWhereMessagesWouldTakeLonger) {
  const SchedulerState state = with_a_full_instance(even_times(2, 1e-3, 1e-5), 15);
  const schedule::ActiveSequence& moves = *std::next(state.active.begin());
  EXPECT_EQ(moves.leaves, 0) << "5 tokens and not 20";
  EXPECT_EQ(state.reserved(1), (Slots{12, 12}));
  EXPECT_EQ(state.demand.moved, 1);
  EXPECT_EQ(state.demand.moved_tokens, 5);
  EXPECT_EQ(state.reserved(0), (Slots{28, 0})) << "it grows when they have left";
  EXPECT_EQ(state.active.front().room, 8);
  EXPECT_TRUE(state.parked.empty());
}

TEST(Demand, LetsOneOfItsInstanceYieldWhereNoneHasRoom) {
  const SchedulerState state = with_a_full_instance({}, 1);
  EXPECT_EQ(ids_of(state.parked), (std::vector<int64_t>{1}))
      << "the one with 3 tokens is elsewhere";
  EXPECT_EQ(state.reserved(0), (Slots{38, 0}));
}

/// Lengths, memories and yields are drawn: every answer is right, and everything ends.
TEST(Demand, EndsWhateverLengthsAndMemory) {
  int64_t parked = 0, returned = 0, grown = 0, forgotten = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Draw draw(seed);
    const auto requests = random_requests(draw);
    SchedulerLimits limits = random_limits(draw, requests);
    limits.on_demand = true;
    limits.max_sequences = draw.of<int64_t>({2, 5, 64});
    const schedule::Scheduler counting(limits);
    limits.kv_tokens = 0;
    for (const batch::Request& request : requests)
      limits.kv_tokens = std::max(limits.kv_tokens, counting.tokens_needed(request));
    std::vector<int64_t> arrivals;
    for (size_t i = 0; i < requests.size(); ++i) arrivals.push_back(draw(0, 30));
    const Served served = serve(limits, requests, int64_t{1} << 40, arrivals);
    expect_same(served.rows, expected(limits, requests));
    std::set<int64_t> seen;
    for (const schedule::Plan& plan : served.plans) {
      parked += std::ssize(plan.parked);
      returned += std::ssize(plan.returned);
      grown += std::ssize(plan.grown);
      forgotten += std::ranges::count_if(
          plan.added, [&](const auto& added) { return !seen.insert(added.sequence).second; });
    }
  }
  EXPECT_GT(parked, 300);
  EXPECT_LE(returned, parked);
  EXPECT_GT(grown, 300);
  EXPECT_GT(forgotten, 300);
}

}  // namespace
}  // namespace pecia::test
