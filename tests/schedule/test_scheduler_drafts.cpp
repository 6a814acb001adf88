// SPDX-License-Identifier: Apache-2.0
/// Drafts change no answer, whatever they are: some of these are right, some begin right, and some are
/// made up.

#include <gtest/gtest.h>

#include <set>

#include "lib/engine/schedule/active_sequence.hpp"
#include "tests/schedule/fake_replica.hpp"
#include "tests/schedule/fake_teams.hpp"
#include "tests/schedule/random_workload.hpp"
#include "tests/schedule/served_by_teams.hpp"

namespace pecia::test {
namespace {

using schedule::ActiveSequence;
using schedule::DraftLimits;

std::vector<int32_t> text_of(const ActiveSequence& sequence) {
  std::vector<int32_t> text = sequence.origin->cached;
  for (const auto& more : {sequence.own_cached, sequence.unfed})
    text.insert(text.end(), more.begin(), more.end());
  return text;
}

/// Drafts what the model would say, and spoils some of it.
DraftLimits drafts_of(int64_t most, uint64_t seed) {
  const auto draft = [seed](const ActiveSequence& sequence, int64_t longest,
                            std::vector<int32_t>& tokens) {
    std::vector<int32_t> history = text_of(sequence);
    Draw draw(mix(seed, history.size()));
    tokens.clear();
    for (int64_t left = draw(0, longest); left > 0; --left) {
      history.push_back(draw.one_in(6) ? static_cast<int32_t>(draw(0, 95))
                                       : next_token(history, sequence.current().random_key));
      tokens.push_back(history.back());
    }
  };
  return {most, false, draft};
}

int64_t accepted_in(const Served& served) {
  int64_t accepted = 0;
  for (const auto& [row, finished] : served.rows) accepted += finished.result.draft_accepted;
  return accepted;
}

TEST(Drafts, ChangeNoAnswer) {
  int64_t accepted = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    const auto requests = random_requests(draw);
    auto limits = random_limits(draw, requests);
    limits.drafts = drafts_of(draw.of<int64_t>({1, 2, 7, 30}), seed);
    const Served served = serve(limits, requests);
    expect_same(served.rows, expected(limits, requests));
    accepted += accepted_in(served);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(accepted, 1000);
}

/// Of models with recurrent layers, whose states go back: the fake replica checks that each pass finds
/// the state after the tokens before it.
TEST(Drafts, ChangeNoAnswerOfStates) {
  int64_t accepted = 0, shortened = 0;
  for (uint64_t seed = 0; seed < 900; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    const auto requests = random_requests(draw);
    auto limits = random_limits(draw, requests);
    limits.has_states = true;
    limits.layout_invariant = limits.ring_size != 3 && draw.one_in(2);
    if (limits.layout_invariant) {
      limits.policy = job::Policy::prefill_first;
      limits.objective = job::Objective::throughput, limits.tbt_s = {};
    }
    const schedule::Scheduler counting(limits);
    for (const batch::Request& request : requests)
      limits.kv_tokens = std::max(limits.kv_tokens, counting.tokens_needed(request));
    limits.drafts = drafts_of(draw.of<int64_t>({1, 2, 7, 30}), seed);
    const Served served = serve(limits, requests);
    expect_same(served.rows, expected(limits, requests));
    accepted += accepted_in(served);
    for (const schedule::Plan& plan : served.plans) shortened += std::ssize(plan.shortened);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(accepted, 1000);
  EXPECT_GT(shortened, 1000);
}

TEST(Drafts, GoOnAfterAStop) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed);
    const auto requests = random_requests(draw);
    auto limits = random_limits(draw, requests);
    limits.drafts = drafts_of(5, seed);
    const Served first = serve(limits, requests, draw(1, 20));
    Served second = serve(limits, resumed(requests, first));
    std::map<int64_t, batch::Finished> rows = first.rows;
    rows.merge(second.rows);
    const auto wanted = expected(limits, requests);
    ASSERT_EQ(rows.size(), wanted.size());
    for (const auto& [row, want] : wanted)
      EXPECT_EQ(rows.at(row).result.tokens, want.result.tokens);
    if (testing::Test::HasFailure()) return;
  }
}

/// Some tokens are kept by ranks, as penalties need them.
std::vector<batch::Request> random_requests_with_penalties(Draw& draw) {
  std::vector<batch::Request> requests = random_requests(draw);
  for (batch::Request& request : requests)
    for (batch::Turn& turn : request.turns)
      if (draw.one_in(4)) turn.params.repetition_penalty = 1.1f;
  return requests;
}

/// Greedy and loongserve, whole and in chunks, with and without phases apart.
void change_no_answer_where_teams_change(bool has_states) {
  ServedByTeams all, apart;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed + 20261201);
    const auto requests = random_requests_with_penalties(draw);
    auto limits = random_teams(draw, requests);
    limits.has_states = has_states;
    limits.on_demand = false;
    limits.forced_yields.reset();
    limits.drafts = drafts_of(draw.of<int64_t>({1, 2, 7, 30}), seed);
    if (limits.ring_size > 1 && draw.one_in(3)) set_apart(limits, draw);
    const int64_t least = least_slots(limits, requests);
    limits.kv_tokens = least + draw(0, 1) * draw(0, least * limits.ring_size);
    const ServedByTeams served = serve_by_teams(limits, requests, draw);
    expect_same(served.rows, expected(limits, requests));
    if (testing::Test::HasFailure()) return;
    (limits.apart() ? apart : all) += served;
  }
  EXPECT_GT(all.drafts.tokens.accepted, 1000);
  EXPECT_GT(all.drafts.tokens.tried - all.drafts.tokens.accepted, 1000);
  EXPECT_GT(all.penalized, 300);
  EXPECT_GT(apart.drafts.tokens.accepted, 300);
  EXPECT_GT(apart.copies, 100);
  for (const ServedByTeams* const served : {&all, &apart})
    EXPECT_TRUE(has_states ? served->drafts.again > 200 : served->drafts.again == 0)
        << served->drafts.again;
}

TEST(Drafts, ChangeNoAnswerWhereTeamsChange) {
  change_no_answer_where_teams_change(false);
}

/// FakeInstance checks that each pass of a sequence finds the state after the tokens before it.
TEST(Drafts, ChangeNoAnswerOfStatesWhereTeamsChange) {
  change_no_answer_where_teams_change(true);
}

/// Sequences yield, keys move and teams grow by memory between passes that drop drafted tokens.
void change_no_answer_of_teams_with_memory_on_demand(bool has_states) {
  ServedByTeams all, apart;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(seed);
    Draw draw(seed + 20261202);
    const auto requests = random_requests_with_penalties(draw);
    auto limits = random_teams(draw, requests);
    limits.has_states = has_states;
    if (has_states) limits.state_tokens = 3;
    limits.on_demand = true;
    limits.max_sequences = draw.of<int64_t>({2, 5, 64});
    limits.max_instances = draw.of<int>({1, 2, 1 << 20});
    limits.drafts = drafts_of(draw.of<int64_t>({1, 2, 7, 30}), seed);
    if (limits.ring_size > 1 && draw.one_in(3)) set_apart(limits, draw);
    const int64_t least = least_slots(limits, requests);
    limits.kv_tokens = least + draw(0, 1) * draw(0, least);
    if (seed % 3 == 0) limits.kv_tokens = 3 * least, limits.forced_yields = seed;  // keys can move
    const ServedByTeams served = serve_by_teams(limits, requests, draw);
    expect_same(served.rows, expected(limits, requests));
    if (testing::Test::HasFailure()) return;
    (limits.apart() ? apart : all) += served;
  }
  EXPECT_GT(all.drafts.tokens.accepted, 1000);
  EXPECT_GT(all.demand.parked, 300);
  EXPECT_GT(all.demand.forgotten, 300);
  EXPECT_GT(all.demand.moved, 5);
  EXPECT_GT(all.demand.scale_ups, 300);
  EXPECT_GT(all.shrinks, 5);
  EXPECT_GT(apart.drafts.tokens.accepted, 300);
  EXPECT_GT(apart.demand.parked, 100);
  EXPECT_GT(apart.demand.forgotten, 100);
  if (has_states) EXPECT_GT(all.drafts.again, 200);
}

TEST(Drafts, ChangeNoAnswerOfTeamsWithMemoryOnDemand) {
  change_no_answer_of_teams_with_memory_on_demand(false);
}

TEST(Drafts, ChangeNoAnswerOfStatesOfTeamsWithMemoryOnDemand) {
  change_no_answer_of_teams_with_memory_on_demand(true);
}

schedule::SchedulerLimits room_for(int64_t tokens) {
  schedule::SchedulerLimits limits;
  limits.ring_size = 2;
  limits.kv_tokens = tokens;
  limits.max_batch_tokens = 100;
  limits.max_positions = 1000;
  limits.vocab = 100;
  return limits;
}

TEST(Drafts, TakeFewerPassesWhereTheyAreRight) {
  auto limits = room_for(60);
  const auto request = ask(0, 10, 41);
  const size_t alone = serve(limits, {request}).plans.size();
  EXPECT_EQ(alone, 41u);
  limits.drafts = {3, false,
                   [](const ActiveSequence& sequence, int64_t most, std::vector<int32_t>& tokens) {
                     std::vector<int32_t> history = text_of(sequence);
                     for (int64_t i = 0; i < most; ++i)
                       history.push_back(next_token(history, sequence.current().random_key));
                     tokens.assign(history.end() - most, history.end());
                   }};
  const Served served = serve(limits, {request});
  EXPECT_EQ(served.plans.size(), 11u) << "4 tokens each";
  EXPECT_EQ(served.rows.at(0).result.draft_accepted, 30);
  expect_same(served.rows, expected(limits, {request}));
  for (size_t pass = 2; pass < served.plans.size(); ++pass)
    EXPECT_TRUE(served.plans[pass].shortened.empty());
}

/// Passes of 1 s, and 1 ms or 2 s for each row. First two passes without drafts are measured.
TEST(Drafts, AreTriedWhereTheyPay) {
  for (const double row_s : {1e-3, 2.0}) {
    auto limits = room_for(400);
    const schedule::RateFit fit({1, row_s, 1e-9});
    limits.pass_times = schedule::PassTimes{fit, fit};
    limits.drafts = {8, true, [](const ActiveSequence&, int64_t, std::vector<int32_t>& tokens) {
                       tokens.assign(1, 7);
                     }};
    const Served served = serve(limits, {ask(0, 10, 9)}, 4);
    for (const size_t pass : {1, 2}) EXPECT_EQ(served.plans[pass].items[0].drafted, 0);
    EXPECT_EQ(served.plans[3].items[0].drafted, row_s < 1 ? 1 : 0);
  }
}

/// The state goes back to where the pass began, and the tokens that were right come with the next one.
TEST(Drafts, ComputeRowsOfAStateAgain) {
  auto limits = room_for(60);
  limits.has_states = true;
  limits.drafts = {4, false,
                   [](const ActiveSequence& sequence, int64_t most, std::vector<int32_t>& tokens) {
                     std::vector<int32_t> history = text_of(sequence);
                     for (int64_t i = 0; i < most; ++i)
                       history.push_back(next_token(history, sequence.current().random_key));
                     tokens.assign(history.end() - most, history.end());
                     if (most > 2) tokens[2] = 96;
                   }};
  const Served served = serve(limits, {ask(0, 10, 12)});
  expect_same(served.rows, expected(limits, {ask(0, 10, 12)}));
  ASSERT_GE(served.plans.size(), 3u);
  EXPECT_EQ(served.plans[1].items[0].rows.count, 5);
  ASSERT_EQ(served.plans[2].shortened.size(), 1u);
  EXPECT_EQ(served.plans[2].shortened[0].length, 10);
  const schedule::PlanItem& next = served.plans[2].items[0];
  EXPECT_EQ(next.rows.first, 10);
  EXPECT_EQ(next.rows.count, 3 + 1 + 2) << "three rows again, and a rank's share of the answer";
  EXPECT_EQ(next.sampled_index, 4);
  EXPECT_EQ(next.samples(), 3);
}

/// A fork's prefix is indexed once, and its branches draft from it.
TEST(Drafts, OfBranchesShareTheIndexOfTheirPrefix) {
  auto limits = room_for(4000);
  limits.max_sequences = 8;
  std::set<const drafts::SuffixIndex*> prefixes;
  int64_t own = 0;
  limits.drafts = {4, false, [&](const ActiveSequence& sequence, int64_t, std::vector<int32_t>&) {
                     prefixes.insert(sequence.origin->text.get());
                     own = std::max(own, sequence.text->size());
                   }};
  batch::Request request = ask(0, 350, 1);
  request.followup = io::Followup::fork;
  for (int64_t row = 1; row < 5; ++row) request.turns.push_back(ask(row, 14, 10).turns.front());
  for (batch::Turn& turn : request.turns)
    for (size_t i = 0; i < turn.tokens.size(); ++i)
      turn.tokens[i] = static_cast<int32_t>(5 + i % 7);
  const Served served = serve(limits, {request});
  expect_same(served.rows, expected(limits, {request}));
  EXPECT_EQ(prefixes.size(), 1u);
  EXPECT_FALSE(prefixes.contains(nullptr));
  EXPECT_LE(own, drafts::SuffixIndex::most_match + 14 + 10);
}

TEST(Drafts, OfBranchesContinueTheirPrefix) {
  auto limits = room_for(400);
  limits.drafts = {4, false};
  schedule::Drafter drafter(limits);
  ActiveSequence branch;
  branch.origin = std::make_shared<schedule::RequestState>();
  batch::Request& request = branch.origin->request;
  request = ask(0, 10, 1);
  request.followup = io::Followup::fork;
  request.turns.push_back(ask(1, 3, 9).turns.front());
  branch.turn = 1, branch.end = 2;
  for (int32_t token = 0; token < 200; ++token) branch.origin->cached.push_back(token + 100);
  branch.own_cached = {1, 150};
  branch.unfed = {151};
  drafts::Draft draft = drafter.draft(branch, 3);
  EXPECT_EQ(draft.tokens, (std::vector<int32_t>{152, 153, 154}));
  EXPECT_EQ(draft.match, 2);
  // A match goes on beyond the prefix, and a longer one counts more.
  branch.own_cached = {1, 150, 151, 7, 298};
  branch.unfed = {299};
  EXPECT_EQ(drafter.draft(branch, 3).tokens, (std::vector<int32_t>{1, 150, 151}));
}

TEST(Drafts, GiveTheSlotsOfOtherTokensBack) {
  auto limits = room_for(60);
  limits.drafts = {3, false, [](const ActiveSequence&, int64_t most, std::vector<int32_t>& tokens) {
                     tokens.assign(most, 96);
                   }};
  const Served served = serve(limits, {ask(0, 10, 9)});
  ASSERT_EQ(served.plans.size(), 9u);
  EXPECT_EQ(served.plans[1].items[0].rows.count, 4);
  ASSERT_EQ(served.plans[2].shortened.size(), 1u);
  EXPECT_EQ(served.plans[2].shortened[0].length, 11);
  EXPECT_EQ(served.plans[2].items[0].rows.first, 11);
  EXPECT_EQ(served.plans[8].items[0].drafted, 0) << "one token is left";
  EXPECT_EQ(served.rows.at(0).result.draft_accepted, 0);
}

/// An answer on two instances, whose drafts are all wrong.
TEST(Drafts, EndWhereTheInstanceIsFull) {
  auto limits = teams_of(2, 12);
  limits.drafts = {8, false, [](const ActiveSequence&, int64_t most, std::vector<int32_t>& tokens) {
                     tokens.assign(most, 96);
                   }};
  schedule::Scheduler scheduler(limits);
  FakeInstances instances(limits);
  scheduler.add(ask(0, 12, 9), 0);  // 20 slots
  double now = 0;
  int64_t drafted = 0;
  std::vector<int64_t> lengths;
  while (auto plan = scheduler.next(now)) {
    instances.send(*plan);
    for (const auto& [sequence, length] : plan->shortened) lengths.push_back(length);
    for (const schedule::PlanItem& item : plan->items) drafted += item.drafted;
    scheduler.commit(*plan, instances.execute(*plan), ++now);
    scheduler.verify();
  }
  EXPECT_GT(drafted, 8);
  EXPECT_EQ(scheduler.draft_counts().tokens.tried, drafted);
  EXPECT_EQ(scheduler.draft_counts().tokens.accepted, 0);
  ASSERT_GE(lengths.size(), 2u);
  EXPECT_EQ(lengths.front(), 13);
  EXPECT_TRUE(std::ranges::is_sorted(lengths));
  const auto finished = scheduler.take_finished();
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].result.tokens, expected(limits, {ask(0, 12, 9)}).at(0).result.tokens);
}

/// What a pass with drafts has left behind is told before keys are written, too.
TEST(Drafts, AreNoPartOfWhatIsKept) {
  for (const bool elastic : {false, true}) {
    auto limits = elastic ? teams_of(2, 60) : room_for(60);
    limits.drafts = {3, false,
                     [](const ActiveSequence&, int64_t most, std::vector<int32_t>& tokens) {
                       tokens.assign(most, 96);
                     }};
    schedule::Scheduler scheduler(limits);
    scheduler.add(ask(0, 10, 20), 0);
    FakeReplica replica(limits);
    FakeInstances instances(limits);
    for (double now = 0; now < 2; ++now) {
      const auto plan = scheduler.next(now);
      ASSERT_TRUE(plan);
      if (elastic) instances.send(*plan);
      scheduler.commit(*plan, elastic ? instances.execute(*plan) : replica.execute(*plan), now + 1);
    }
    ASSERT_EQ(scheduler.shortened().size(), 1u);
    EXPECT_EQ(scheduler.shortened()[0].length, 11);
    ASSERT_EQ(scheduler.keepable().size(), 1u);
    EXPECT_EQ(scheduler.keepable()[0].tokens.size(), 11u);
  }
}

/// Passes of teams take 1 s, and 1 ms or 2 s more for each row.
TEST(Drafts, AreTriedByTeamsWhereTheyPay) {
  for (const double row_s : {1e-3, 2.0}) {
    auto limits = teams_of(2, 400);
    const schedule::RateFit fit({1, row_s, 1e-9});
    limits.team_times.emplace(schedule::PassTimes{fit, fit},
                              schedule::TeamCosts{.bytes_per_second = 1e9}, 2);
    limits.drafts = {8, true, [](const ActiveSequence&, int64_t, std::vector<int32_t>& tokens) {
                       tokens.assign(1, 7);
                     }};
    schedule::Scheduler scheduler(limits);
    FakeInstances instances(limits);
    scheduler.add(ask(0, 10, 9), 0);
    const auto prompt = scheduler.next(0);
    ASSERT_TRUE(prompt);
    instances.send(*prompt);
    scheduler.commit(*prompt, instances.execute(*prompt), 1);
    const auto answer = scheduler.next(1);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->items[0].drafted, row_s < 1 ? 1 : 0);
  }
}

}  // namespace
}  // namespace pecia::test
