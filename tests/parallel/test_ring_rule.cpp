// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lib/base/core/error.hpp"
#include "lib/ranks/parallel/fitted_rule.hpp"
#include "tests/parallel/published_rules.hpp"

namespace pecia::parallel {
namespace {

using test::llama_405b_on_4_hosts, test::rule_a, test::rule_c, test::RingFit;

/// Llama-3-405B in bf16 on 4 hosts of 8 H100, each rank's 502 TFLOP/s and 26 GB/s, to the
/// next rank and to all others alike.
RingInputs llama_405b(int64_t new_tokens, int64_t cached_tokens) {
  RingInputs in;
  in.load.add(new_tokens, cached_tokens);
  in.ranks = 4;
  in.shape = {128, 8, 2, 2, 2};
  in.rates = {502e12, 26e9, 26e9};
  return in;
}

/// Table 4 of the paper: TTFT in ms, P + T = 128000.
struct Measured {
  int64_t cached, fresh;
  double pass_kv_ms, pass_q_ms;

  AttentionExchange faster() const {
    return pass_kv_ms < pass_q_ms ? AttentionExchange::pass_kv : AttentionExchange::pass_q;
  }
  double difference() const {
    return std::abs(pass_kv_ms - pass_q_ms) / std::min(pass_kv_ms, pass_q_ms);
  }
};
const std::vector<Measured> table = {
    {126720, 1280, 1023.39, 898.71},     {124800, 3200, 1110.18, 1046.43},
    {123840, 4160, 1298.92, 1280.10},    {121600, 6400, 1305.56, 1302.01},
    {115200, 12800, 2080.67, 2205.27},   {102400, 25600, 3353.02, 3617.02},
    {89600, 38400, 4629.23, 4922.52},    {76800, 51200, 5745.08, 6217.83},
    {64000, 64000, 6845.21, 7367.99},    {51200, 76800, 7890.35, 8468.66},
    {38400, 89600, 8697.27, 9666.62},    {25600, 102400, 10105.78, 10652.39},
    {12800, 115200, 11136.40, 11571.62}, {0, 128000, 11462.15, 12360.57}};

/// The T of those rows that differ by more than 1 % and whose faster side `rule` does not name.
template <typename Rule>
std::vector<int64_t> errors_of(const Rule& rule, double least_difference = 0.01) {
  std::vector<int64_t> errors;
  for (const Measured& row : table)
    if (row.difference() > least_difference &&
        rule(llama_405b(row.fresh, row.cached)) != row.faster())
      errors.push_back(row.fresh);
  return errors;
}

TEST(RuleA, NamesTheFasterSideOfTheTable) {
  EXPECT_EQ(errors_of([](const RingInputs& in) { return rule_a(in).ring; }),
            std::vector<int64_t>{});
}

TEST(RuleB, ErrsOnceInTheTable) {
  EXPECT_EQ(errors_of([](const RingInputs& in) { return rule_b(in).ring; }),
            std::vector<int64_t>{4160});
}

TEST(RuleC, NamesTheFasterSideOfEveryRowWithTheSignsOfThePreset) {
  const auto by = [](const RingFit& fit) {
    return [fit](const RingInputs& in) { return rule_c(in, fit); };
  };
  EXPECT_EQ(errors_of(by(llama_405b_on_4_hosts), 0), std::vector<int64_t>{});
  // As printed, with the miss rate as a fraction: h = α·ln T + β·ln(m) + γ.
  const RingFit printed{-1.059, 1.145, 12.112 - 1.145 * std::log(100)};
  EXPECT_EQ(errors_of(by(printed), 0).size(), 10u);
}

/// The published rule with the signs of the preset, as its numbers stand here.
FittedRule published_rule() {
  const auto [alpha, beta, gamma] = llama_405b_on_4_hosts;
  return {alpha, beta, gamma + beta * std::log(100)};
}

/// Passes of this number of keys, whose times differ as `rule` says.
std::vector<RingTimes> times_by(const FittedRule& rule, const std::vector<int64_t>& keys) {
  std::vector<RingTimes> times;
  for (const int64_t all : keys)
    for (const int64_t part : {64, 16, 4, 2, 1}) {
      RingTimes each{{}, 2, 2};
      each.load.add(all / part, all - all / part);
      each.pass_q_s *= std::exp(rule.h(each.load));
      times.push_back(each);
    }
  return times;
}

TEST(FittedRule, IsTheOneThatMadeTheTimes) {
  const FittedRule rule = published_rule();
  const FittedRule found = fit_rule(times_by(rule, {32'000, 128'000, 512'000}));
  EXPECT_NEAR(found.new_tokens, rule.new_tokens, 1e-5);
  EXPECT_NEAR(found.miss_rate, rule.miss_rate, 1e-5);
  EXPECT_NEAR(found.constant, rule.constant, 1e-4);
}

TEST(FittedRule, NamesTheFasterWayOfOneLengthToo) {
  const auto times = times_by(published_rule(), {128'000});
  EXPECT_EQ(count_right(fit_rule(times), times), 5);
  EXPECT_LT(fit_rule(times).h(times.front().load), 0);
  EXPECT_GT(fit_rule(times).h(times.back().load), 0);
}

/// Fitted to the paper's own times, it errs where these differ by less than 2 % or lie on no line.
TEST(FittedRule, OfTheTableErrsOnceAtMost) {
  std::vector<RingTimes> times;
  for (const Measured& row : table) {
    RingTimes each{{}, row.pass_kv_ms, row.pass_q_ms};
    each.load.add(row.fresh, row.cached);
    times.push_back(each);
  }
  const FittedRule rule = fit_rule(times);
  EXPECT_LE(errors_of([&](const RingInputs& in) { return decide_fitted(in, rule).ring; }).size(),
            1u);
}

TEST(FittedRule, DecidesBesideRuleB) {
  const RingInputs in = llama_405b(3200, 124800);
  const FittedRule keys{0, 0, 1}, queries{0, 0, -1};
  EXPECT_EQ(decide_fitted(in, keys).ring, AttentionExchange::pass_kv);
  EXPECT_EQ(decide_fitted(in, queries).ring, AttentionExchange::pass_q);
  EXPECT_EQ(decide_fitted(in, queries).h, -1);
  EXPECT_EQ(decide_fitted(in, queries).miss_rate_limit, rule_b(in).miss_rate_limit);
  EXPECT_FALSE(rule_b(in).h);
}

TEST(FittedRule, NeedsFourTimesAboveZero) {
  auto times = times_by(published_rule(), {1000});
  times.resize(3);
  EXPECT_THROW(fit_rule(times), InvalidArgument);
  times = times_by(published_rule(), {1000});
  times[1].pass_q_s = 0;
  EXPECT_THROW(fit_rule(times), InvalidArgument);
}

TEST(Conditions, AreThoseOfThePageByHand) {
  const RingInputs in = llama_405b(3200, 124800);
  // 2·8/128; 4·502e12·8·2/(2·128·26e9); 4·502e12·2/(4·26e9)
  EXPECT_EQ(miss_rate_of_equal_messages(in), 0.125);
  EXPECT_NEAR(new_tokens_that_hide_kv(in), 4826.92, 0.01);
  EXPECT_NEAR(tokens_that_hide_q(in), 38615.4, 0.1);
  EXPECT_TRUE(q_is_smaller(in));
  EXPECT_FALSE(kv_is_hidden(in));
  EXPECT_TRUE(q_is_hidden(in));
  EXPECT_TRUE(kv_is_hidden(llama_405b(4827, 0)));
  EXPECT_FALSE(kv_is_hidden(llama_405b(4826, 0)));
  EXPECT_FALSE(q_is_hidden(llama_405b(1, 38614)));
  EXPECT_TRUE(q_is_smaller(llama_405b(1, 7)));
  EXPECT_FALSE(q_is_smaller(llama_405b(2, 13)));
}

TEST(RuleB, LimitsTheMissRateAsOnThePage) {
  // 0.125 − 4·3200·26e9/(4·502e12·2)
  EXPECT_NEAR(rule_b(llama_405b(3200, 124800)).miss_rate_limit, 0.0421315, 1e-7);
  // Where the limit is negative, keys are hidden, and the other way round.
  for (const int64_t tokens : {1, 4826, 4827, 100000})
    EXPECT_EQ(rule_b(llama_405b(tokens, 0)).miss_rate_limit <= 0,
              kv_is_hidden(llama_405b(tokens, 0)));
}

TEST(Rules, GiveTheDecisionWithItsInputs) {
  const RingDecision decision = rule_b(llama_405b(1280, 126720));
  EXPECT_EQ(decision.ring, AttentionExchange::pass_q);
  EXPECT_EQ(decision.in.load.new_tokens, 1280);
  EXPECT_EQ(decision.in.load.cached_tokens(), 126720);
  EXPECT_EQ(decision.in.ranks, 4);
  EXPECT_EQ(decision.in.rates.bandwidth, 26e9);
  EXPECT_NEAR(decision.miss_rate_limit, 0.125 - 4 * 1280 * 26e9 / (4 * 502e12 * 2), 1e-9);
  EXPECT_NEAR(decision.hiding_tokens, 4826.92, 0.01);
}

/// Seconds of all ring steps of one layer that attention does not hide, per element of head_dim, as
/// in the header's formulas.
double exposed_pass_kv(const RingInputs& in) {
  const double step = 4 * in.load.pairs * in.shape.num_heads / (in.ranks * in.ranks);
  const double sent = 2 * in.load.keys * in.shape.num_kv_heads * in.shape.kv_bytes / in.ranks;
  return std::max(0.0, sent / in.rates.bandwidth - step / in.rates.flops);
}
double returning_pass_q(const RingInputs& in) {
  return in.load.new_tokens * in.shape.num_heads * in.shape.out_bytes /
         (in.ranks * in.rates.all_to_all_bandwidth);
}

/// With the queries' ring hidden, as the rule supposes, it picks the cheaper side in real bytes:
/// KV in bf16, queries and outputs in fp32, an all-to-all as fast as the ring or a quarter of it.
TEST(RuleB, PicksTheFewerExposedSeconds) {
  int chosen[2] = {};
  for (const double share : {1.0, 0.25})
    for (const int64_t fresh : {1, 10, 100, 900, 1100, 5000, 20000})
      for (const int64_t cached : {0, 1000, 50000, 400000}) {
        RingInputs in = llama_405b(fresh, cached);
        in.shape.q_bytes = in.shape.out_bytes = 4;
        in.rates.all_to_all_bandwidth = share * in.rates.bandwidth;
        const AttentionExchange cheaper = exposed_pass_kv(in) <= returning_pass_q(in)
                                              ? AttentionExchange::pass_kv
                                              : AttentionExchange::pass_q;
        EXPECT_EQ(rule_b(in).ring, cheaper) << fresh << " after " << cached;
        ++chosen[static_cast<int>(cheaper)];
      }
  EXPECT_GT(chosen[0], 0);
  EXPECT_GT(chosen[1], 0);
}

TEST(RuleB, LetsKeysTravelSoonerWhereAnAllToAllIsSlower) {
  // Of 4 ranks on 2 servers 4 of an all-to-all's messages cross each way, each a third of what a
  // rank sends; of a ring's, one does: 3/4 of its bandwidth. The limit falls from 4.2 % to 3.2 %.
  RingInputs in = llama_405b(3200, 124800);
  const double limit = rule_b(in).miss_rate_limit;
  in.rates.all_to_all_bandwidth *= 0.75;
  EXPECT_NEAR(rule_b(in).miss_rate_limit, 0.75 * limit, 1e-9);
}

TEST(RingLoad, OfASharedPassHidesKeysByThePairsPerKey) {
  // A whole prompt hides its own keys, but not those of 64 long sequences that decode beside it.
  RingInputs in = llama_405b(8192, 0);
  EXPECT_EQ(rule_b(in).ring, AttentionExchange::pass_kv);
  for (int i = 0; i < 64; ++i) in.load.add(1, 127999);
  EXPECT_EQ(in.load.new_tokens, 8192 + 64);
  EXPECT_EQ(in.load.keys, 8192 + 64 * 128000.0);
  EXPECT_EQ(in.load.pairs, 8192.0 * 8192 + 64 * 128000.0);
  EXPECT_EQ(rule_b(in).ring, AttentionExchange::pass_q);
}

TEST(Rules, RefuseWhatHasNoRates) {
  RingInputs in = llama_405b(10, 0);
  in.rates = {};
  EXPECT_THROW(rule_b(in), InvalidArgument);
  in.rates = {1, 1, 0};
  EXPECT_THROW(rule_b(in), InvalidArgument);
}

}  // namespace
}  // namespace pecia::parallel
