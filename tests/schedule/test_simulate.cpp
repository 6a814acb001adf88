// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "lib/base/core/error.hpp"
#include "lib/engine/schedule/simulate.hpp"

namespace pecia::schedule {
namespace {

constexpr double pass_s = 0.5, row_s = 0.01, pair_s = 1e-5;
constexpr double message_s = 0.001;
constexpr int layers = 2;

TeamTimes times_of(int instances) {
  const RateFit fit({pass_s, row_s, pair_s});
  return {
      {fit, fit}, {.message_s = message_s, .bytes_per_second = 1e12, .layers = layers}, instances};
}

SchedulerLimits limits_of(int instances, bool elastic) {
  SchedulerLimits limits;
  limits.ring_size = instances;
  limits.elastic = elastic;
  limits.kv_tokens = 1000;
  limits.max_sequences = 8;
  limits.max_batch_tokens = 100;
  limits.max_positions = 10000;
  limits.vocab = 100;
  limits.ring = parallel::AttentionExchange::pass_kv;
  if (elastic) limits.team_times = times_of(instances);
  return limits;
}

double pairs(double first, double count) {
  return count * (first + 0.5 * (count + 1));
}

TEST(Simulate, OneRequestTakesTheSumOfItsPasses) {
  const Simulation found = simulate(limits_of(1, false), times_of(1),
                                    {{.turns = {{.prompt_tokens = 150, .answer_tokens = 3}}}});
  // Chunks of 100 and 50 tokens; the second one gives the first token. Then two more.
  const double ttft = 2 * pass_s + 150 * row_s + pair_s * pairs(0, 150);
  const double answers = 2 * pass_s + 2 * row_s + pair_s * pairs(150, 2);
  EXPECT_EQ(found.passes, 4);
  EXPECT_EQ(found.answered, 1);
  EXPECT_NEAR(found.ttft_s.at(0), ttft, 1e-5);  // results hold floats
  EXPECT_NEAR(found.latency_s.at(0), ttft + answers, 1e-5);
  EXPECT_NEAR(found.seconds, ttft + answers, 1e-9);
}

/// The second prompt comes while the first answer is made, whose next token waits for it.
TEST(Simulate, GapsBetweenTokensCountThePromptsThatAreReadMeanwhile) {
  const std::vector<SimulatedRequest> two = {
      {.turns = {{.prompt_tokens = 10, .answer_tokens = 5}}, .arrival_s = 0},
      {.turns = {{.prompt_tokens = 100, .answer_tokens = 3}}, .arrival_s = 1.5}};
  const Simulation found = simulate(limits_of(1, false), times_of(1), two);
  const double prompt = pass_s + 100 * row_s + pair_s * pairs(0, 100);
  const double step = pass_s + row_s + pair_s * 12, both = pass_s + 2 * row_s;
  EXPECT_EQ(found.gaps.count(), 4 + 2);
  EXPECT_NEAR(found.longest_gap_s.at(0), prompt + both, 0.01);
  EXPECT_NEAR(found.longest_gap_s.at(1), both, 0.01);
  EXPECT_NEAR(found.gaps.quantile(0.2), step, 0.02 * step);
  EXPECT_NEAR(found.gaps.quantile(1), prompt + both, 0.02 * prompt);
}

/// Long prompts come beside answers. Without the objective, answers wait for whole batches of them.
TEST(Simulate, NoTokenIsLateWhereTimeBetweenTokensIsTheObjective) {
  std::vector<SimulatedRequest> requests;
  for (int i = 0; i < 12; ++i)
    requests.push_back({.turns = {{.prompt_tokens = i % 3 == 0 ? 1500 : 20, .answer_tokens = 40}},
                        .arrival_s = 3.0 * i});
  for (const int instances : {1, 3})
    for (const bool elastic : {false, true})
      for (const job::Policy policy : {job::Policy::prefill_first, job::Policy::chunked}) {
        SchedulerLimits limits = limits_of(instances, elastic);
        limits.kv_tokens = 50000;
        limits.max_batch_tokens = 4000;
        limits.policy = policy;
        limits.team_times = times_of(instances);
        const Simulation free = simulate(limits, times_of(instances), requests);
        EXPECT_GT(std::ranges::max(free.longest_gap_s), 6);
        EXPECT_EQ(free.gaps_kept, 0);
        limits.tbt_s = 4;
        const Simulation kept = simulate(limits, times_of(instances), requests);
        EXPECT_EQ(kept.gaps.count(), 12 * 39);
        EXPECT_GE(kept.gaps_kept, 12 * 39 * 0.995) << instances << elastic;
        EXPECT_GE(kept.seconds, free.seconds) << "it costs passes";
        limits.tbt_s = 0.1;  // less than a pass takes
        const Simulation never = simulate(limits, times_of(instances), requests);
        EXPECT_EQ(never.gaps_kept, 0);
        EXPECT_EQ(never.answered, 12);
      }
}

/// A short request comes while a long one is read.
TEST(Simulate, AShortRequestOvertakesALongOneInARingToo) {
  SchedulerLimits limits = limits_of(2, false);
  limits.kv_tokens = limits.max_batch_tokens = 10000;
  limits.team_times = times_of(2);
  const std::vector<SimulatedRequest> two = {
      {.turns = {{.prompt_tokens = 8000, .answer_tokens = 2}}, .arrival_s = 0},
      {.turns = {{.prompt_tokens = 10, .answer_tokens = 2}}, .arrival_s = 1}};
  const Simulation in_order = simulate(limits, times_of(2), two);
  limits.objective = job::Objective::ttft;
  const Simulation by_time = simulate(limits, times_of(2), two);
  EXPECT_GT(in_order.ttft_s.at(1), 100) << "a pass reads all of it";
  EXPECT_LT(by_time.ttft_s.at(1), 25) << "a short one 2000 tokens";
  EXPECT_LT(by_time.latency_s.at(1), by_time.ttft_s.at(0));
}

TEST(Simulate, TurnsOfOneRequestHaveOneLongestGap) {
  const std::vector<SimulatedTurn> turns(2, {.prompt_tokens = 20, .answer_tokens = 2});
  for (const bool elastic : {false, true})
    for (const io::Followup followup : {io::Followup::chain, io::Followup::fork}) {
      const Simulation found = simulate(limits_of(2, elastic), times_of(2),
                                        {{followup, turns, {}}, {.turns = {{.prompt_tokens = 5}}}});
      EXPECT_EQ(found.gaps.count(), 2) << "none between two answers, nor before the first token";
      EXPECT_GT(found.longest_gap_s.at(0), pass_s);
      EXPECT_EQ(found.longest_gap_s.at(1), 0);
    }
}

TEST(TokenGaps, AreKnownWithinOnePercent) {
  TokenGaps gaps;
  EXPECT_EQ(gaps.quantile(0.5), 0);
  for (int i = 1; i <= 1000; ++i) gaps.add(1e-3 * i);
  for (const double share : {0.1, 0.5, 0.99, 1.0}) {
    EXPECT_GE(gaps.quantile(share), 0.9999 * share);
    EXPECT_LE(gaps.quantile(share), 1.011 * share);
  }
  gaps.add(0);
  EXPECT_EQ(gaps.count(), 1001);
  EXPECT_THROW(gaps.add(-1), InvalidArgument);
}

TEST(Simulate, AnswersMayEndBeforeTheyHaveTo) {
  const std::vector<schedule::SimulatedTurn> longest = {
      {.prompt_tokens = 100, .answer_tokens = 10, .max_new_tokens = 500}};
  const std::vector<schedule::SimulatedTurn> known = {{.prompt_tokens = 100, .answer_tokens = 10}};
  const Simulation found = simulate(limits_of(1, false), times_of(1), {{.turns = longest}});
  EXPECT_EQ(found.passes, 10);
  EXPECT_NEAR(found.seconds, simulate(limits_of(1, false), times_of(1), {{.turns = known}}).seconds,
              1e-9);
}

TEST(Simulate, KeysThatYieldTakeTimeToLeaveAndToComeBack) {
  schedule::SchedulerLimits limits = limits_of(1, false);
  limits.on_demand = true;
  limits.block = 10;
  limits.kv_tokens = 160;
  const std::vector<schedule::SimulatedRequest> two = {
      {.turns = {{.prompt_tokens = 50, .answer_tokens = 100}}},
      {.turns = {{.prompt_tokens = 40, .answer_tokens = 100}}}};
  const Simulation free = simulate(limits, times_of(1), two);
  EXPECT_EQ(free.answered, 2);
  EXPECT_EQ(free.demand.parked, 1);
  EXPECT_EQ(free.demand.returned_tokens, free.demand.parked_tokens);
  limits.parking_s = 1e-3;
  EXPECT_NEAR(simulate(limits, times_of(1), two).seconds - free.seconds,
              2e-3 * static_cast<double>(free.demand.parked_tokens), 1e-9);
}

TEST(Simulate, ARingSharesRowsAndWaitsForMessages) {
  const Simulation found = simulate(limits_of(2, false), times_of(2),
                                    {{.turns = {{.prompt_tokens = 100, .answer_tokens = 2}}}});
  const double ttft = pass_s + layers * message_s + 50 * row_s + pair_s * pairs(0, 100) / 2;
  const double second = pass_s + layers * 2 * message_s + row_s + pair_s * pairs(100, 1) / 2;
  EXPECT_NEAR(found.ttft_s.at(0), ttft, 1e-5);
  EXPECT_NEAR(found.seconds, ttft + second, 1e-6);
}

TEST(Simulate, ElasticTeamsWorkSideBySide) {
  const std::vector<SimulatedRequest> two(2,
                                          {.turns = {{.prompt_tokens = 40, .answer_tokens = 2}}});
  const double alone = simulate(limits_of(1, false), times_of(1), {two[0]}).seconds;
  const Simulation found = simulate(limits_of(2, true), times_of(2), two);
  EXPECT_NEAR(found.seconds, alone, 1e-9);
  EXPECT_EQ(found.answered, 2);
  EXPECT_EQ(found.passes, 4);
}

/// While nothing waits, passes are short, so that the instance of the short request, which ends
/// first, helps with the long one from the next pass on.
TEST(Simulate, AnInstanceThatHasNothingMoreToDoHelpsSoon) {
  constexpr double short_pass_s = 0.01;
  const RateFit fit({short_pass_s, row_s, 1e-9});
  const TeamTimes times({fit, fit}, {.message_s = 1e-4, .bytes_per_second = 1e12, .layers = 1}, 2);
  SchedulerLimits limits = limits_of(2, true);
  limits.team_times = times;
  limits.kv_tokens = limits.max_batch_tokens = 1000;
  const Simulation found = simulate(limits, times,
                                    {{.turns = {{.prompt_tokens = 960, .answer_tokens = 1}}},
                                     {.turns = {{.prompt_tokens = 60, .answer_tokens = 1}}}});
  EXPECT_GT(found.seconds, 0.5 * 1020 * row_s) << "both ranks have work all the time";
  EXPECT_LT(found.seconds, 0.8 * 960 * row_s) << "the long one is not read by one alone";
}

/// Cached keys go round once for each pass. So passes of a prompt that lies on two instances are as
/// long as they may be where the link is slow, though others might want to go first.
TEST(Simulate, ShortPassesCountTheKeysThatTravel) {
  constexpr double token_s = 0.01, tokens = 1600, a_pass = 400;
  const RateFit fit({0.01, row_s, 1e-9});
  const TeamTimes times({fit, fit},
                        {.bytes_per_second = 1, .kv_bytes_per_token = token_s, .layers = 1}, 2);
  SchedulerLimits limits = limits_of(2, true);
  limits.objective = job::Objective::ttft;
  limits.team_times = times;
  limits.max_batch_tokens = static_cast<int64_t>(a_pass / 2);
  const Simulation found =
      simulate(limits, times,
               {{.turns = {{.prompt_tokens = static_cast<int64_t>(tokens), .answer_tokens = 1}},
                 .arrival_s = 0}});
  // Nothing is cached before the first pass, which is short.
  EXPECT_EQ(found.passes, 1 + static_cast<int64_t>(tokens / a_pass));
}

TEST(Simulate, RequestsWaitForTheirArrival) {
  std::vector<SimulatedRequest> requests(2, {.turns = {{.prompt_tokens = 10, .answer_tokens = 1}}});
  requests[0].arrival_s = 3;
  requests[1].arrival_s = 100;
  const double one = pass_s + 10 * row_s + pair_s * pairs(0, 10);
  const Simulation found = simulate(limits_of(1, false), times_of(1), requests);
  EXPECT_NEAR(found.ttft_s.at(0), one, 1e-5);
  EXPECT_NEAR(found.ttft_s.at(1), one, 1e-5);
  EXPECT_NEAR(found.seconds, 100 + one, 1e-9);
}

TEST(Simulate, ARequestThatCannotRunIsNotAnswered) {
  const Simulation found = simulate(limits_of(1, false), times_of(1),
                                    {{.turns = {{.prompt_tokens = 2000, .answer_tokens = 1}}},
                                     {.turns = {{.prompt_tokens = 10, .answer_tokens = 1}}}});
  EXPECT_EQ(found.answered, 1);
  EXPECT_EQ(found.refused, 1);
  EXPECT_TRUE(std::isnan(found.ttft_s.at(0)));
  EXPECT_GT(found.latency_s.at(1), 0);
}

TEST(Simulate, ChainsAndForksRunToTheirEnd) {
  const std::vector<SimulatedTurn> turns(3, {.prompt_tokens = 20, .answer_tokens = 4});
  for (const bool elastic : {false, true})
    for (const io::Followup followup : {io::Followup::chain, io::Followup::fork})
      EXPECT_EQ(simulate(limits_of(2, elastic), times_of(2),
                         std::vector<SimulatedRequest>(5, {followup, turns, {}}))
                    .answered,
                15);
}

/// Three questions about one text, one of them with a second turn, and a fork of the text whose last
/// turn reads the end of its first one again.
TEST(Simulate, JoinedRequestsAreSparedTheirCommonBeginning) {
  SimulatedRequest joined{io::Followup::fork, {{.prompt_tokens = 50}}, {}};
  const SimulatedTurn question{.prompt_tokens = 10, .answer_tokens = 2, .shared_tokens = 50};
  SimulatedTurn begins = question;
  begins.goes_on = true;
  joined.turns.insert(joined.turns.end(), {question, question, begins, {5, 2}});
  joined.turns.push_back({.prompt_tokens = 4, .answer_tokens = 0, .shared_tokens = 50});
  joined.turns.push_back({.prompt_tokens = 4 + 3, .answer_tokens = 2, .stem_end_tokens = 4});
  for (const bool elastic : {false, true}) {
    const Simulation found = simulate(limits_of(2, elastic), times_of(2), {joined});
    EXPECT_EQ(found.answered, 6);  // the common beginning is no turn of its own
    EXPECT_EQ(found.sharing.prefixes, 1);
    EXPECT_EQ(found.sharing.prefix_tokens, 50);
    EXPECT_EQ(found.sharing.requests, 4);
    EXPECT_EQ(found.sharing.shared_tokens, 4 * 50);
    EXPECT_EQ(found.sharing.repeated_tokens, 4);
    EXPECT_GT(found.ttft_s.at(0), 0);
  }
}

TEST(Simulate, AnswersHaveTheirLengthAndNoLogProbabilities) {
  SchedulerLimits limits = limits_of(1, false);
  const std::vector<SimulatedRequest> one = {
      {.turns = {{.prompt_tokens = 20, .answer_tokens = 7}}}};
  const Simulation plain = simulate(limits, times_of(1), one);
  for (int32_t token = 0; token < 100; ++token) limits.stop_token_ids.push_back(token);
  limits.logprobs = limits.prompt_logprobs = -1;
  limits.vocab = int64_t{1} << 40;  // no memory would hold these
  const Simulation found = simulate(limits, times_of(1), one);
  EXPECT_EQ(found.passes, 7);
  EXPECT_EQ(found.seconds, plain.seconds);
}

TEST(Simulate, CallsAreMadeByTheCaller) {
  int next = 0, commit = 0;
  const Simulation found = simulate(limits_of(1, false), times_of(1),
                                    {{.turns = {{.prompt_tokens = 10, .answer_tokens = 5}}}}, 1,
                                    [&](Call call, const std::function<void()>& work) {
                                      ++(call == Call::next ? next : commit);
                                      work();
                                    });
  EXPECT_EQ(commit, found.passes);
  EXPECT_GE(next, found.passes);
}

TEST(Simulate, ReplicasShareTheRequests) {
  for (const bool arrive : {false, true}) {
    std::vector<SimulatedRequest> requests(3,
                                           {.turns = {{.prompt_tokens = 80, .answer_tokens = 1}}});
    if (arrive)
      for (SimulatedRequest& request : requests) request.arrival_s = 5;
    const double one = pass_s + 80 * row_s + pair_s * pairs(0, 80);
    const Simulation found = simulate(limits_of(1, false), times_of(1), requests, 3);
    EXPECT_NEAR(found.seconds, (arrive ? 5 : 0) + one, 1e-9);
    EXPECT_EQ(found.answered, 3);
  }
}

TEST(Simulate, AnIdleInstanceBeginsARequestAsItComes) {
  std::vector<SimulatedRequest> requests(2,
                                         {.turns = {{.prompt_tokens = 100, .answer_tokens = 1}}});
  requests[0].arrival_s = 0;
  requests[1].arrival_s = 0.25;  // while the first is read
  const double one = pass_s + 100 * row_s + pair_s * pairs(0, 100);
  SchedulerLimits limits = limits_of(2, true);
  limits.max_instances = 1;
  EXPECT_NEAR(simulate(limits, times_of(2), requests).ttft_s.at(1), one, 1e-5);
}

TEST(Simulate, ATimeLimitIsRefused) {
  SchedulerLimits limits = limits_of(1, false);
  const RateFit fit({pass_s, row_s, pair_s});
  limits.time = TimeLimit{.end_s = 10, .times = {fit, fit}};
  EXPECT_THROW(simulate(limits, times_of(1), {}), InvalidArgument);
}

}  // namespace
}  // namespace pecia::schedule
