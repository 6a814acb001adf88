// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "lib/core/error.hpp"
#include "lib/schedule/elastic_steps.hpp"
#include "tests/schedule/random_workload.hpp"

namespace pecia::schedule {
namespace {

using job::Objective;

/// A pass costs as much as 200 rows. A decode pass of an instance reads its weights in 10 ms.
TeamTimes machine(int degrees, double message_s = 1e-5) {
  const PassTimes alone{RateFit({2e-2, 1e-4, 1e-9}), RateFit({1e-2, 1e-4, 1e-9})};
  return TeamTimes(alone, {message_s, 1e9, 2e4, 3e4, 10}, degrees);
}

std::vector<ElasticRequest> draw_requests(test::Draw& draw, int64_t count) {
  std::vector<ElasticRequest> requests;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t most = draw.of<int64_t>({20, 2000, 200000});
    requests.push_back({draw(1, most), draw.one_in(3) ? draw(0, 50000) : 0, draw(0, 300)});
  }
  return requests;
}

// ---- dispatch ----

TEST(Dispatch, NeverExceedsTheSlotsNorOvertakes) {
  constexpr uint64_t seed = 1;
  RecordProperty("seed", std::to_string(seed));
  test::Draw draw(seed);
  const TeamTimes times = machine(1);
  std::set<DispatchStop> seen;
  for (int attempt = 0; attempt < 500; ++attempt) {
    const auto waiting = draw_requests(draw, draw(0, 12));
    const DispatchState state{
        draw(0, 300000), static_cast<int>(draw(0, 3)),      static_cast<int>(draw(0, 3)),
        draw(0, 20),     static_cast<double>(draw(0, 300)), draw.of<int64_t>({64, 4096})};
    const Dispatch result = dispatch(times, waiting, state);
    seen.insert(result.stop);
    int64_t slots = 0;
    for (size_t i = 0; i < result.count; ++i) slots += waiting[i].slots();
    EXPECT_LE(slots, state.free_slots);
    if (result.stop == DispatchStop::all_taken) {
      EXPECT_EQ(result.count, waiting.size());
      continue;
    }
    ASSERT_LT(result.count, waiting.size());
    const bool has_room = slots + waiting[result.count].slots() <= state.free_slots;
    if (result.stop == DispatchStop::slots) {
      EXPECT_FALSE(has_room);
    } else if (result.stop == DispatchStop::no_instance) {
      EXPECT_EQ(state.idle_instances + state.decoding_instances, 0);
    } else {
      EXPECT_TRUE(has_room);
      EXPECT_GE(result.marginal_s, result.limit_s);
      EXPECT_NEAR(result.marginal_s, result.rejected_s - result.seconds, 1e-9 * result.rejected_s);
    }
  }
  EXPECT_EQ(seen.size(), 5u) << "all reasons were met";
}

TEST(Dispatch, FillsAPassAndNoMore) {
  const std::vector<ElasticRequest> waiting(100, {64, 0, 8});
  const DispatchState state{1 << 20, 1, 0, 0, 0, 512};
  const Dispatch result = dispatch(machine(1), waiting, state);
  EXPECT_EQ(result.stop, DispatchStop::compute_bound);
  EXPECT_EQ(result.count, 512u / 64);
}

TEST(Dispatch, StopsWhereTheFixedTimeOfAPassNoLongerCounts) {
  const std::vector<ElasticRequest> waiting(100, {64, 0, 8});
  const DispatchState state{1 << 20, 1, 0, 0, 0, 1 << 20};
  const Dispatch result = dispatch(machine(1), waiting, state);
  EXPECT_EQ(result.stop, DispatchStop::compute_bound);
  const double fixed = 2e-2 / result.seconds, fixed_with_next = 2e-2 / result.rejected_s;
  EXPECT_GT(fixed, 0.05);
  EXPECT_LE(fixed_with_next, 0.05 + 1e-9);
}

TEST(Dispatch, TakesALongRequestThatIsFirst) {
  const Dispatch result = dispatch(machine(1), {{1000000, 0, 10}}, {2000000, 1, 0, 0, 0, 512});
  EXPECT_EQ(result.count, 1u);
}

TEST(Dispatch, DelaysDecodesOnlyForLessThanRequestsWouldWait) {
  const std::vector<ElasticRequest> waiting{{1000, 0, 10}};
  const double seconds = dispatch(machine(1), waiting, {5000, 1, 0, 0, 0, 4096}).seconds;
  DispatchState state{5000, 0, 1, 10, 11 * seconds, 4096};
  EXPECT_EQ(dispatch(machine(1), waiting, state).count, 1u);
  state.wait_s = 9 * seconds;
  const Dispatch rejected = dispatch(machine(1), waiting, state);
  EXPECT_EQ(rejected.stop, DispatchStop::preemption);
  EXPECT_DOUBLE_EQ(rejected.rejected_s, seconds);
}

TEST(Dispatch, RefusesARequestWithNothingToRead) {
  EXPECT_THROW(dispatch(machine(1), {{0, 10, 10}}, {100, 1, 0, 0, 0, 64}), InvalidArgument);
}

// ---- allocate ----

PrefillDemand demand(int64_t requests, int64_t slots, std::vector<double> seconds,
                     double wait_s = 100) {
  return {requests, slots, std::move(seconds), wait_s};
}

std::vector<int32_t> instances_of(const std::vector<InstanceChoice>& choices) {
  std::vector<int32_t> result;
  for (const InstanceChoice& choice : choices) result.push_back(choice.instance);
  return result;
}

TEST(Allocate, TakesNoMoreIdleInstancesThanHelp) {
  const std::vector<Candidate> idle{{0, -1, 100}, {1, -1, 300}, {2, -1, 200}, {3, -1, 300}};
  const Allocation two = allocate(machine(4), idle, {}, demand(1, 50, {4, 3, 3, 3}));
  EXPECT_EQ(instances_of(two.taken), (std::vector<int32_t>{1, 3})) << "most free slots first";
  EXPECT_EQ(two.seconds, 3);
  ASSERT_EQ(two.rejected.size(), 1u);
  EXPECT_EQ(two.rejected[0].gain_s, 0);
  const Allocation all = allocate(machine(4), idle, {}, demand(1, 50, {4, 4, 4, 1}));
  EXPECT_EQ(all.taken.size(), 4u) << "only all four together help";
  const Allocation one = allocate(machine(4), idle, {}, demand(1, 50, {4, 5, 6, 7}, 0));
  EXPECT_EQ(one.taken.size(), 1u);
}

TEST(Allocate, TakesFurtherIdleInstancesForSlots) {
  const std::vector<Candidate> idle{{0, -1, 100}, {1, -1, 100}, {2, -1, 100}};
  const Allocation result = allocate(machine(3), idle, {}, demand(1, 250, {1, 1, 1}));
  EXPECT_EQ(result.taken.size(), 3u);
  EXPECT_FALSE(result.taken[0].for_slots);
  EXPECT_TRUE(result.taken[2].for_slots);
  const Allocation none = allocate(machine(3), idle, {}, demand(1, 301, {1, 1, 1}));
  EXPECT_EQ(none.end, AllocationEnd::too_few_slots);
  EXPECT_TRUE(none.taken.empty());
  EXPECT_EQ(instances_of(none.rejected), (std::vector<int32_t>{0, 1, 2}));
}

TEST(Allocate, ShrinksAGroupWhereMovingCostsLessThanItGains) {
  const std::vector<DecodeGroup> groups{{2, 3000, 0}};
  const std::vector<Candidate> candidates{
      {0, -1, 5000}, {1, 0, 5000, 2000, 100}, {2, 0, 5000, 1000, 50}};
  // 1000 tokens move in 0.02 s, which two answers wait: 0.04.
  const Allocation taken = allocate(machine(3), candidates, groups, demand(1, 10, {1, 0.95}));
  ASSERT_EQ(instances_of(taken.taken), (std::vector<int32_t>{0, 2})) << "fewest tokens to move";
  EXPECT_EQ(taken.taken[1].source, InstanceSource::shrunk);
  EXPECT_NEAR(taken.taken[1].cost_s, 0.04, 1e-12);
  EXPECT_NEAR(taken.taken[1].gain_s, 0.05, 1e-12);
  EXPECT_EQ(taken.taken[1].moves, (std::vector<KvShare>{{1, 1000, 50}}));
  const Allocation kept = allocate(machine(3), candidates, groups, demand(1, 10, {1, 0.97}));
  EXPECT_EQ(instances_of(kept.taken), (std::vector<int32_t>{0}));
  EXPECT_EQ(kept.rejected[0].source, InstanceSource::shrunk);
}

TEST(Allocate, CountsThePassesThatBecomeSlower) {
  const std::vector<Candidate> candidates{{0, -1, 5000}, {1, 0, 5000, 10}, {2, 0, 5000, 10}};
  const PrefillDemand gains = demand(1, 10, {1, 0.5});
  const DecodeGroup brief{1, 4000000, 10}, lasting{1, 4000000, 1000};
  EXPECT_EQ(allocate(machine(3), candidates, {brief}, gains).taken.size(), 2u);
  EXPECT_EQ(allocate(machine(3), candidates, {lasting}, gains).taken.size(), 1u);
}

TEST(Allocate, PreemptsTheInstanceWithMostFreeSlotsFirst) {
  const std::vector<DecodeGroup> groups{{1, 100, 10}, {1, 100, 10}};
  const std::vector<Candidate> candidates{{0, 0, 10, 100}, {1, 1, 20, 100}};
  const Allocation result = allocate(machine(2), candidates, groups, demand(4, 5, {2, 0.2}, 9));
  EXPECT_EQ(instances_of(result.taken), (std::vector<int32_t>{1, 0}));
  EXPECT_EQ(result.taken[0].source, InstanceSource::preempted);
  EXPECT_DOUBLE_EQ(result.taken[0].gain_s, 4 * 9);
  EXPECT_DOUBLE_EQ(result.taken[0].cost_s, 1 * 2);
  EXPECT_DOUBLE_EQ(result.taken[1].gain_s, 5 * 1.8) << "the delayed answer gains, too";
  EXPECT_DOUBLE_EQ(result.seconds, 0.2);
  EXPECT_DOUBLE_EQ(result.rejected_s, 9 + 2);
}

TEST(Allocate, TakesTheRestOfADelayedGroupForNothing) {
  const std::vector<DecodeGroup> groups{{3, 100, 10}};
  const std::vector<Candidate> candidates{{0, 0, 10, 100}, {1, 0, 20, 100}};  // no room to shrink
  const Allocation result = allocate(machine(2), candidates, groups, demand(1, 5, {2, 1}, 50));
  ASSERT_EQ(result.taken.size(), 2u);
  EXPECT_EQ(result.taken[1].cost_s, 0);
}

TEST(Allocate, WaitsWhereSlotsWouldCostMoreThanWaiting) {
  const std::vector<DecodeGroup> groups{{10, 100, 10}, {10, 100, 10}};
  const std::vector<Candidate> candidates{{0, 0, 10, 100}, {1, 1, 10, 100}};
  const Allocation result = allocate(machine(2), candidates, groups, demand(1, 15, {2, 2}, 3));
  EXPECT_EQ(result.end, AllocationEnd::costs_more);
  EXPECT_TRUE(result.taken.empty());
  EXPECT_DOUBLE_EQ(result.seconds, 3 + 2);
  EXPECT_DOUBLE_EQ(result.rejected_s, 2);
}

/// Whatever is taken has the slots, and what moves fits where it goes.
TEST(Allocate, KeepsToTheSlotsOfRandomReplicas) {
  constexpr uint64_t seed = 2;
  RecordProperty("seed", std::to_string(seed));
  test::Draw draw(seed);
  std::set<AllocationEnd> ends;
  std::set<InstanceSource> sources;
  for (int attempt = 0; attempt < 500; ++attempt) {
    std::vector<DecodeGroup> groups(draw(0, 3));
    for (DecodeGroup& group : groups)
      group = {draw(1, 20), draw(1, 100000), static_cast<double>(draw(0, 200))};
    std::vector<Candidate> candidates;
    for (int32_t i = 0; i < draw(1, 8); ++i) {
      Candidate c{i, static_cast<int32_t>(draw(-1, static_cast<int64_t>(groups.size()) - 1)),
                  draw(0, 5000)};
      if (c.group >= 0) c.kv_tokens = draw(0, 4000), c.reserved_tokens = draw(0, 500);
      candidates.push_back(c);
    }
    std::vector<double> seconds{static_cast<double>(draw(1, 1000)) / 100};
    while (seconds.size() < 8)
      seconds.push_back(seconds.back() * 0.01 * static_cast<double>(draw(50, 100)));
    const PrefillDemand asked{draw(1, 8), draw(0, 12000), seconds,
                              static_cast<double>(draw(0, 20))};
    const Allocation result = allocate(machine(8), candidates, groups, asked);
    ends.insert(result.end);
    if (result.end != AllocationEnd::taken) {
      EXPECT_TRUE(result.taken.empty());
      continue;
    }
    std::vector<Candidate> now = candidates;
    std::set<int32_t> taken;
    int64_t slots = 0;
    for (const InstanceChoice& choice : result.taken) {
      sources.insert(choice.source);
      EXPECT_TRUE(taken.insert(choice.instance).second);
      Candidate& c = now[choice.instance];
      EXPECT_TRUE(choice.for_slots || choice.source == InstanceSource::idle ||
                  choice.gain_s > choice.cost_s);
      if (choice.source == InstanceSource::shrunk) {
        int64_t tokens = 0, reserved = 0;
        for (const KvShare& move : choice.moves) {
          Candidate& other = now[move.instance];
          EXPECT_EQ(other.group, c.group);
          EXPECT_FALSE(taken.contains(move.instance));
          other.free_slots -= move.tokens + move.answer_tokens;
          other.kv_tokens += move.tokens, other.reserved_tokens += move.answer_tokens;
          EXPECT_GE(other.free_slots, 0);
          tokens += move.tokens, reserved += move.answer_tokens;
        }
        EXPECT_EQ(tokens, c.kv_tokens);
        EXPECT_EQ(reserved, c.reserved_tokens);
        slots += tokens + reserved;
      }
      slots += c.free_slots;
    }
    EXPECT_GE(slots, asked.slots);
    EXPECT_LE(result.rejected.size(), 3u);
  }
  EXPECT_EQ(ends.size(), 3u);
  EXPECT_EQ(sources.size(), 3u);
}

// ---- batches ----

double sum_of(const std::vector<int64_t>& values) {
  return static_cast<double>(std::accumulate(values.begin(), values.end(), int64_t{0}));
}

struct Found {
  double value = std::numeric_limits<double>::infinity();
  double area = std::numeric_limits<double>::infinity();
};

/// Tries every partition of the sorted requests and every degree of each group.
Found search(const TeamTimes& times, std::vector<ElasticRequest> sorted, const BatchLimits& limits,
             Objective objective) {
  const auto key = [&](const ElasticRequest& r) {
    return times.seconds(1, PassKind::prefill,
                         {0, static_cast<double>(r.prompt_tokens), r.pairs()});
  };
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const auto& a, const auto& b) { return key(a) < key(b); });
  Found best;
  const auto seconds = [&](size_t i, size_t j, int degree) {
    std::vector<int64_t> tokens, slots;
    double pairs = 0;
    for (; i < j; ++i) {
      tokens.push_back(sorted[i].prompt_tokens), slots.push_back(sorted[i].slots());
      pairs += sorted[i].pairs();
    }
    if (sum_of(slots) > static_cast<double>(limits.slots_per_instance) * degree)
      return std::numeric_limits<double>::infinity();
    const double rows = std::ceil(sum_of(tokens) / degree);
    const double passes = std::ceil(rows / static_cast<double>(limits.rows_per_instance));
    return times.seconds(degree, PassKind::prefill, {passes, rows, pairs / degree});
  };
  const std::function<void(size_t, int, Found)> go = [&](size_t i, int left, Found so_far) {
    if (i == sorted.size()) {
      const double tolerance = 1e-12 * so_far.value;
      if (so_far.value < best.value - tolerance ||
          (so_far.value < best.value + tolerance && so_far.area < best.area))
        best = so_far;
      return;
    }
    for (size_t j = i + 1; j <= sorted.size(); ++j)
      for (int degree = 1; degree <= std::min(left, times.degrees()); ++degree) {
        const double s = seconds(i, j, degree);
        if (std::isinf(s)) continue;
        const double value =
            objective == Objective::ttft
                ? so_far.value + s * static_cast<double>(j - i) / static_cast<double>(sorted.size())
                : std::max(so_far.value, s);
        go(j, left - degree, {value, so_far.area + degree * s});
      }
  };
  go(0, limits.instances, {0, 0});
  return best;
}

void check_partition(const Batches& result, size_t requests, int instances) {
  std::vector<int32_t> seen;
  int degrees = 0;
  for (const BatchGroup& group : result.groups) {
    EXPECT_FALSE(group.requests.empty());
    EXPECT_GE(group.degree, 1);
    degrees += group.degree;
    seen.insert(seen.end(), group.requests.begin(), group.requests.end());
  }
  EXPECT_LE(degrees, instances);
  std::sort(seen.begin(), seen.end());
  std::vector<int32_t> all(requests);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(seen, all);
  EXPECT_EQ(result.by_instances.size(), static_cast<size_t>(instances));
  EXPECT_TRUE(std::is_sorted(result.by_instances.rbegin(), result.by_instances.rend()));
}

TEST(Batches, AreAsGoodAsExhaustiveSearch) {
  constexpr uint64_t seed = 3;
  RecordProperty("seed", std::to_string(seed));
  test::Draw draw(seed);
  size_t several_groups = 0, one_group = 0, too_few_slots = 0;
  for (int attempt = 0; attempt < 300; ++attempt) {
    const int instances = static_cast<int>(draw(1, 6));
    const TeamTimes times =
        machine(static_cast<int>(draw(1, 6)), draw.of<double>({1e-6, 1e-4, 5e-3}));
    const auto requests = draw_requests(draw, draw(1, 6));
    BatchLimits limits{instances, draw.of<int64_t>({64, 2048, 100000})};
    if (draw.one_in(3)) limits.slots_per_instance = draw.of<int64_t>({3000, 100000});
    for (const Objective objective : {Objective::throughput, Objective::ttft}) {
      const Batches result = batches(times, requests, limits, objective);
      const Found best = search(times, requests, limits, objective);
      if (std::isinf(best.value)) {
        ++too_few_slots;
        ASSERT_EQ(result.groups.size(), 1u);
        EXPECT_EQ(result.groups[0].degree, std::min(instances, times.degrees()));
        continue;
      }
      check_partition(result, requests.size(), instances);
      ++(result.groups.size() > 1 ? several_groups : one_group);
      const double value = objective == Objective::ttft ? result.mean_s : result.makespan_s;
      EXPECT_NEAR(value, best.value, 1e-9 * best.value);
      EXPECT_NEAR(result.by_instances.back(), best.value, 1e-9 * best.value);
      if (limits.slots_per_instance == BatchLimits{}.slots_per_instance) {
        EXPECT_LE(value, (1 + 1e-12) * result.one_group_s);
      }
      if (objective == Objective::ttft) continue;
      double area = 0;
      for (const BatchGroup& group : result.groups) area += group.degree * group.seconds;
      EXPECT_NEAR(area, best.area, 1e-9 * best.area);
    }
  }
  EXPECT_GT(several_groups, 100u);
  EXPECT_GT(one_group, 20u);
  EXPECT_GT(too_few_slots, 5u);
}

TEST(Batches, TellTheValueOnFewerInstances) {
  test::Draw draw(4);
  const auto requests = draw_requests(draw, 12);
  const TeamTimes times = machine(8);
  for (const Objective objective : {Objective::throughput, Objective::ttft}) {
    const Batches all = batches(times, requests, {8, 512}, objective);
    for (int k = 1; k <= 8; ++k)
      EXPECT_DOUBLE_EQ(all.by_instances[k - 1],
                       batches(times, requests, {k, 512}, objective).by_instances.back());
  }
}

TEST(Batches, LeaveShortRequestsAloneAndGiveTheLongOneMore) {
  std::vector<ElasticRequest> requests(6, {100, 0, 10});
  requests.push_back({400000, 0, 10});
  const Batches result = batches(machine(8), requests, {8, 4096}, Objective::ttft);
  EXPECT_EQ(result.groups.back().requests, (std::vector<int32_t>{6}));
  EXPECT_GE(result.groups.back().degree, 4);
  for (size_t i = 0; i + 1 < result.groups.size(); ++i) EXPECT_EQ(result.groups[i].degree, 1);
}

/// Their rows cost less than the instance that they would keep from the long one.
TEST(Batches, ReadShortRequestsWithTheLongOneForTheLeastMakespan) {
  std::vector<ElasticRequest> requests(6, {100, 0, 10});
  requests.push_back({400000, 0, 10});
  const Batches result = batches(machine(8), requests, {8, 4096}, Objective::throughput);
  ASSERT_EQ(result.groups.size(), 1u);
  EXPECT_EQ(result.groups[0].degree, 8);
}

TEST(Batches, UseOneInstanceForAShortRequest) {
  const Batches result = batches(machine(8, 1e-3), {{200, 0, 10}}, {8, 4096}, Objective::ttft);
  ASSERT_EQ(result.groups.size(), 1u);
  EXPECT_EQ(result.groups[0].degree, 1);
  EXPECT_EQ(result.groups[0].seconds, result.one_group_s);
}

TEST(Batches, DealManyEqualRequestsEvenly) {
  const std::vector<ElasticRequest> requests(512, {4096, 0, 10});
  for (const Objective objective : {Objective::throughput, Objective::ttft}) {
    const Batches result = batches(machine(64), requests, {64, 512}, objective);
    check_partition(result, 512, 64);
    ASSERT_EQ(result.groups.size(), 64u);
    for (const BatchGroup& group : result.groups) EXPECT_EQ(group.requests.size(), 8u);
  }
}

/// More requests than the recursion tells apart: still a partition, and not worse than one group.
TEST(Batches, OfVeryManyRequestsAreAPartition) {
  constexpr uint64_t seed = 5;
  RecordProperty("seed", std::to_string(seed));
  test::Draw draw(seed);
  const auto requests = draw_requests(draw, 700);
  for (const int instances : {1, 7, 64, 100})
    for (const Objective objective : {Objective::throughput, Objective::ttft}) {
      const Batches result = batches(machine(64), requests, {instances, 512}, objective);
      check_partition(result, 700, instances);
      const double value = objective == Objective::ttft ? result.mean_s : result.makespan_s;
      EXPECT_LE(value, (1 + 1e-12) * result.one_group_s);
      for (const BatchGroup& group : result.groups) {
        std::vector<double> lengths;
        for (const int32_t i : group.requests)
          lengths.push_back(1e-4 * static_cast<double>(requests[i].prompt_tokens) +
                            1e-9 * requests[i].pairs());
        EXPECT_TRUE(std::is_sorted(lengths.begin(), lengths.end()));
      }
    }
}

TEST(Batches, OfNothingAreNone) {
  EXPECT_TRUE(batches(machine(2), {}, {2, 64}, Objective::ttft).groups.empty());
  EXPECT_THROW(batches(machine(2), {{0, 1, 1}}, {2, 64}, Objective::ttft), InvalidArgument);
  EXPECT_THROW(batches(machine(2), {}, {0, 64}, Objective::ttft), InvalidArgument);
}

// ---- keepers, masters, degree_alone ----

TEST(SharesByFreeSlots, AreTheHeadersExamples) {
  EXPECT_EQ(shares_by_free_slots(10, {6, 6, 3}), (std::vector<int64_t>{4, 4, 2}));
  EXPECT_EQ(shares_by_free_slots(10, {7, 5, 5}), (std::vector<int64_t>{4, 3, 3}));
  EXPECT_EQ(shares_by_free_slots(10, {7, 7, 7}), (std::vector<int64_t>{4, 3, 3}));
  EXPECT_EQ(shares_by_free_slots(0, {0, 0}), (std::vector<int64_t>{0, 0}));
  EXPECT_THROW(shares_by_free_slots(8, {4, 3}), InvalidArgument);
}

/// The least number of instances, found by trying all subsets.
size_t least_keepers(const std::vector<FreeSlots>& team, int64_t needed) {
  size_t least = team.size() + 1;
  for (size_t set = 1; set < size_t{1} << team.size(); ++set) {
    int64_t slots = 0;
    size_t count = 0;
    for (size_t i = 0; i < team.size(); ++i)
      if (set >> i & 1) slots += team[i].slots, ++count;
    if (slots >= needed) least = std::min(least, count);
  }
  return least;
}

TEST(Keepers, AreTheFewestAndHoldAllWithinTheirSlots) {
  constexpr uint64_t seed = 6;
  RecordProperty("seed", std::to_string(seed));
  test::Draw draw(seed);
  int refused = 0;
  for (int attempt = 0; attempt < 500; ++attempt) {
    std::vector<FreeSlots> team;
    for (int64_t i = draw(1, 7); i > 0; --i)
      team.push_back({static_cast<int32_t>(10 + i), draw(0, draw.of<int64_t>({10, 1000}))});
    const int64_t tokens = draw(0, 1500), answer = draw(0, 100);
    const Keepers result = keepers(machine(8), team, tokens, answer);
    const size_t least = least_keepers(team, tokens + answer);
    if (least > team.size()) {
      ++refused;
      EXPECT_TRUE(result.shares.empty());
      int64_t slots = 0;
      for (const FreeSlots& instance : team) slots += instance.slots;
      EXPECT_EQ(result.missing_slots, tokens + answer - slots);
      continue;
    }
    EXPECT_EQ(result.shares.size(), least);
    EXPECT_EQ(result.missing_slots, 0);
    int64_t held = 0, reserved = 0;
    for (const auto& [instance, own, own_answer] : result.shares) {
      const auto at = std::find_if(team.begin(), team.end(),
                                   [&](const FreeSlots& f) { return f.instance == instance; });
      ASSERT_NE(at, team.end());
      EXPECT_GE(own, 0);
      EXPECT_GE(own_answer, 0);
      EXPECT_LE(own + own_answer, at->slots);
      held += own, reserved += own_answer;
    }
    EXPECT_EQ(held, tokens);
    EXPECT_EQ(reserved, answer);
  }
  EXPECT_GT(refused, 20);
}

TEST(Keepers, AreTheEarlierOnesOfEqualInstances) {
  const Keepers result = keepers(machine(3), {{4, 50}, {7, 90}, {5, 90}}, 60, 10);
  EXPECT_EQ(result.shares, (std::vector<KvShare>{{7, 60, 10}}));
  EXPECT_DOUBLE_EQ(result.seconds, machine(3).decode_s(1, 1, 1, 70));
  EXPECT_DOUBLE_EQ(result.whole_team_s, machine(3).decode_s(3, 1, 1, 70));
}

TEST(Masters, AreOneForAFewRowsAndMoreForMany) {
  const TeamTimes times = machine(8);
  EXPECT_EQ(masters(times, 8, 1, 1000).count, 1);
  EXPECT_EQ(masters(times, 8, 0, 0).count, 1);
  // A row takes 0.31 ms on 8 instances, the fixed part of a pass 10.2 ms.
  const Masters many = masters(times, 8, 512, 100000);
  EXPECT_GE(many.count, 7);
  EXPECT_LE(many.seconds, 1.02 * many.most_s);
  EXPECT_GT(many.one_s, 5 * many.seconds);
  for (int64_t rows = 1; rows < 40; ++rows) {
    const Masters few = masters(times, 4, rows, 1000);
    EXPECT_LE(few.count, rows);
    EXPECT_LE(few.seconds, 1.02 * few.most_s);
    if (few.count == 1) continue;
    EXPECT_GT(times.decode_s(4, few.count - 1, rows, 1000), 1.02 * few.most_s) << "fewer would do";
  }
}

TEST(DegreeAlone, IsTheHeadersExample) {
  const DegreeChoice choice = degree_alone({24, 13, 9.5, 8}, 80, 8);
  EXPECT_EQ(choice.degree, 3);
  EXPECT_EQ(choice.seconds, 9.5);
  EXPECT_DOUBLE_EQ(choice.end_s, 10.5625);
  EXPECT_EQ(choice.alone_end_s, 24);
  EXPECT_EQ(choice.fastest, 4);
  EXPECT_EQ(choice.fastest_end_s, 11);
}

TEST(DegreeAlone, IsOneForAShortRequestAndTheFastestForALoneOne) {
  EXPECT_EQ(degree_alone({5, 2.6, 1.8, 1.4}, 80, 8).degree, 1);
  EXPECT_EQ(degree_alone({24, 13, 9.5, 9.7}, 24, 4).degree, 3) << "degree 4 is slower";
}

TEST(DegreeAlone, DoesNotBuyALittleTimeWithMuchWork) {
  EXPECT_EQ(degree_alone({10.1, 10}, 20, 2).degree, 1) << "although 10 s is the area bound";
}

TEST(DegreeAlone, RefusesWhatContradictsItself) {
  EXPECT_THROW(degree_alone({}, 1, 1), InvalidArgument);
  EXPECT_THROW(degree_alone({2}, 1, 1), InvalidArgument) << "more than all work";
  EXPECT_THROW(degree_alone({2, 1}, 2, 1), InvalidArgument) << "more degrees than instances";
  EXPECT_THROW(degree_alone({0}, 2, 1), InvalidArgument);
}

}  // namespace
}  // namespace pecia::schedule
