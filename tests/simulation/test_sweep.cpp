// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "lib/base/core/error.hpp"
#include "lib/engine/execute/rank_needs.hpp"
#include "lib/simulation/batch_end.hpp"
#include "lib/simulation/plan_report.hpp"
#include "lib/simulation/request_latency.hpp"
#include "lib/simulation/sweep.hpp"
#include "tests/simulation/small_job.hpp"

namespace pecia::simulation {
namespace {

using schedule::PassKind;
using schedule::SimulatedRequest;
using testing::HasSubstr;

std::map<int, double> best_ends(const Sweep& found) {
  std::map<int, double> ends;
  for (const LayoutForecast& plan : found.plans)
    if (plan.end) ends.try_emplace(plan.ranks, plan.end->end_s);
  return ends;
}

TEST(PlannedDrafts, HaveTheTokensThatAShareOfRightOnesGives) {
  job::Job job;
  EXPECT_FALSE(most_drafted(job));
  job.generation.drafts.emplace();
  EXPECT_EQ(most_drafted(job), 16);
  job.generation.drafts.emplace(3);
  EXPECT_EQ(most_drafted(job), 3);
  EXPECT_DOUBLE_EQ(tokens_of_a_step(3, 0.5), 1 + 0.5 + 0.25 + 0.125);
  EXPECT_DOUBLE_EQ(tokens_of_a_step(3, 1), 4);
  EXPECT_DOUBLE_EQ(tokens_of_a_step(3, 0), 1);
}

TEST(Mix, AddsUpToTheWork) {
  const std::vector<schedule::PassWork> passes{{1, 100, 5000}, {1, 100, 25000}, {1, 25, 300}};
  const schedule::PassWork work{10, 775, 90600};  // 4, 3 and 3 of them, but 300 fewer pairs
  const auto times = mix_of(passes, work);
  EXPECT_NEAR(times[0] + times[1] + times[2], 10, 0.05);
  EXPECT_NEAR(times[2], 3, 0.1);
  for (const double each : mix_of(passes, {1, 400, 100})) EXPECT_GE(each, 0);
}

TEST(ReplicaCostModel, GiveARequestTheTimeOfItsOwnPasses) {
  const SmallJob small;
  PassCosts costs(small.scenario());
  resources::Resources resources = ring_of(2, 256);
  const ReplicaCostModel times(costs, resources, {2000, 1, 4, 1000}, Fidelity::replayed);
  EXPECT_LT(times.error(), 0.05);
  for (const RequestShape& shape : {RequestShape{2000, 0, 8}, RequestShape{900, 0, 200}}) {
    const RequestLatency alone = request_latency(costs, resources, shape);
    const PassCost prefill =
        times.of(PassKind::prefill, 2, schedule::busiest_prefill(2, 0, shape.prompt_tokens, 256));
    EXPECT_NEAR(prefill.seconds, alone.ttft_s, 0.05 * alone.ttft_s);
    EXPECT_NEAR(prefill.times.attention_s, alone.prefill.attention_s,
                0.15 * alone.prefill.attention_s);
    EXPECT_NEAR(times.teams().decode_s(2, 1, 1, shape.prompt_tokens + shape.new_tokens / 2),
                alone.tbt_s, 0.05 * alone.tbt_s);
  }
}

/// A job may ask for passes without bounds.
TEST(ReplicaCostModel, OfUnboundedPassesAreThoseOfTheBatch) {
  const SmallJob small;
  PassCosts costs(small.scenario());
  resources::Resources resources = ring_of(2, std::numeric_limits<int64_t>::max());
  const ReplicaCostModel times(costs, resources, {500, 3, 4, 300}, Fidelity::replayed);
  EXPECT_LT(times.error(), 0.2);
  resources.elastic = true;
  resources.ring = parallel::AttentionExchange::pass_kv;
  resources.decode = parallel::DecodeMode::broadcast_q;
  const ReplicaCostModel teams(costs, resources, {500, 3, 4, 300}, Fidelity::lower_bound);
  EXPECT_EQ(teams.teams().degrees(), 2);
}

resources::Resources teams_of(int most) {
  resources::Resources resources = ring_of(most, 256);
  resources.elastic = true;
  resources.max_instances = most;
  resources.ring = parallel::AttentionExchange::pass_kv;
  resources.decode = parallel::DecodeMode::broadcast_q;
  resources.max_sequences = 12;
  return resources;
}

/// The degree 3 is not played: its rates lie between its neighbours'.
TEST(ReplicaCostModel, OfTeamsThatChangeComeCloseToTheirPasses) {
  const SmallJob small;
  PassCosts costs(small.scenario());
  const resources::Resources resources = teams_of(4);
  const ReplicaCostModel times(costs, resources, {1024, 1, 12, 600}, Fidelity::replayed);
  const schedule::TeamTimes& teams = times.teams();
  ASSERT_EQ(teams.degrees(), 4);
  const ReplicaPasses of(costs, resources, Fidelity::replayed);
  for (int degree = 1; degree <= 4; ++degree)
    for (const PassShape& shape :
         {of.prefill(degree, 1, 256 * degree, 0), of.prefill(degree, 1, 100 * degree, 600),
          of.step(degree, 1, 1, 300), of.step(degree, degree, 12, 600)}) {
      const PassCost& played = of.cost(shape);
      EXPECT_NEAR(teams.seconds(degree, shape.kind, played.work), played.seconds,
                  0.25 * played.seconds)
          << degree << " instances, " << shape.sequences << " × " << shape.tokens << " after "
          << shape.cached;
    }
  // More instances read a long prompt sooner; a short answer is made by one.
  EXPECT_LT(teams.prefill_s(4, 0, 1024, 1024), teams.prefill_s(2, 0, 1024, 512));
  EXPECT_LT(teams.prefill_s(2, 0, 1024, 512), teams.prefill_s(1, 0, 1024, 256));
  EXPECT_LT(teams.decode_s(1, 1, 1, 100), teams.decode_s(4, 1, 1, 100));
}

TEST(BatchEnd, OfTeamsThatChangeIsThatOfTheirWork) {
  const SmallJob small;
  PassCosts costs(small.scenario());
  resources::Resources resources = teams_of(4);
  resources.kv_tokens = 4096;
  const Batch batch(requests_of(std::vector<int64_t>(9, 800), 20), small.config);
  const ReplicaCostModel times(costs, resources, lengths_of(batch, resources), Fidelity::replayed);
  const BatchEnd end = play(batch, small.job, small.config, resources, times);
  EXPECT_EQ(end.refused, 0);
  // Nine requests on four instances: more than two of them one after the other, less than three.
  const schedule::TeamTimes& teams = times.teams();
  const double alone_s = teams.prefill_s(1, 0, 800, 256) + 19 * teams.decode_s(1, 1, 1, 810);
  EXPECT_GT(end.end_s, 9.0 / 4 * 0.7 * alone_s);
  EXPECT_LT(end.end_s, 3 * alone_s);
  EXPECT_LE(end_lower_bound_s(batch, resources, times), end.end_s);
  EXPECT_NEAR(end.prefill.seconds + end.decode.seconds, end.busy * end.end_s, 0.01 * end.end_s);
  EXPECT_GT(end.busy, 0.5);
  EXPECT_LE(end.busy, 1);
}

TEST(Sweep, CoversTeamsThatChangeLevelsAndTheSameBits) {
  const auto best = [](const SmallJob& small, const std::vector<int64_t>& prompts) {
    Batches batches(requests_of(prompts, 10), small.config);
    PassCosts costs(small.scenario());
    SweepQuestion question;
    question.ranks = {4};
    question.kept = {.dp = 1, .sp = 1, .tp = 1};
    return sweep(costs, batches, question).plans.front();
  };
  SmallJob small;
  small.job.batch.max_batch_tokens = 1024;  // enough for levels on four ranks
  const double ring_s = best(small, {1500}).end->end_s;
  small.job.attention.sparse = job::Sparse::csa;
  small.job.attention.drop = job::DropSetting{0.5, {}};
  const LayoutForecast sparse = best(small, {1500});
  EXPECT_TRUE(sparse.resources.sparse);
  EXPECT_LT(sparse.end->end_s, ring_s);

  SmallJob layout;
  layout.job.batch.max_batch_tokens = 1024;
  layout.job.reproducible = parallel::Reproducible::layout;
  EXPECT_GT(best(layout, {1500}).end->end_s, ring_s);

  SmallJob teams;
  teams.job.parallel.cp.elastic = true;
  const std::vector<int64_t> mixed{1500, 60, 60, 60, 60, 60, 60, 60, 60, 60, 60, 60};
  const LayoutForecast elastic = best(teams, mixed);
  EXPECT_TRUE(elastic.resources.elastic);
  EXPECT_LT(elastic.end->end_s, 2 * best(SmallJob(), mixed).end->end_s);
}

TEST(Layouts, AreAllLegalGridsOfTheRanks) {
  const SmallJob small;
  const auto shape = resources::shape_of(small.config);
  const auto all = layouts_of(4, small.job, {}, small.config);
  EXPECT_EQ(all.front().dp, 4);
  for (const job::Job::Parallel& each : all)
    EXPECT_EQ(*each.dp * *each.cp.degree * *each.sp * *each.tp, 4);
  std::ptrdiff_t modes = 0;
  for (const int dp : {1, 2, 4}) modes += std::ssize(parallel::legal_modes(4 / dp, shape));
  EXPECT_EQ(std::ranges::count(all, false, [](const auto& each) { return each.cp.elastic; }),
            modes);
}

TEST(Layouts, HaveTeamsThatChangeWhereTheJobLeavesThemOpen) {
  const SmallJob small;
  const auto elastic = [&](const job::Job& job, const KeptDegrees& kept) {
    std::vector<int> degrees;
    for (const job::Job::Parallel& each : layouts_of(4, job, kept, small.config))
      if (each.cp.elastic) degrees.push_back(*each.cp.degree);
    return degrees;
  };
  EXPECT_EQ(elastic(small.job, {.sp = 1, .tp = 1}), (std::vector{2, 4}));
  EXPECT_TRUE(elastic(small.job, {.cp = 4}).empty());
  job::Job ring = small.job;
  ring.parallel.ring = parallel::AttentionExchange::pass_q;
  EXPECT_TRUE(elastic(ring, {}).empty());
  job::Job same_bits = small.job;
  same_bits.reproducible = parallel::Reproducible::layout;
  EXPECT_TRUE(elastic(same_bits, {}).empty());
}

TEST(Layouts, LeaveOutWhatThisVersionRefuses) {
  SmallJob small;
  small.job.backend = job::BackendKind::cpu;
  small.job.model.dtype = job::Precision::int4;
  const auto all = layouts_of(4, small.job, {}, small.config);
  EXPECT_FALSE(all.empty());
  for (const job::Job::Parallel& each : all) EXPECT_EQ(*each.sp * *each.tp, 1);
}

TEST(Layouts, HaveStagesWhereTheJobLeavesThemOpen) {
  SmallJob small;
  const auto stages = [&](const KeptDegrees& kept) {
    std::set<int> found;
    for (const job::Job::Parallel& each : layouts_of(8, small.job, kept, small.config)) {
      found.insert(*each.pp);
      EXPECT_EQ(*each.dp * *each.pp * *each.cp.degree * *each.sp * *each.tp, 8);
      if (*each.pp > 1) {
        EXPECT_FALSE(each.cp.elastic);
      }
    }
    return found;
  };
  EXPECT_EQ(stages({}), (std::set{1}));
  EXPECT_EQ(stages({.pp = {}}), (std::set{1, 2, 4}));  // of 6 layers
  EXPECT_EQ(stages({.pp = {}, .tp = 4}), (std::set{1, 2}));
  EXPECT_EQ(stages({.pp = 4}), (std::set{4}));
  small.job.batch.objective.objective = job::Objective::ttft;
  EXPECT_EQ(stages({.pp = {}}), (std::set{1}));
}

TEST(Layouts, KeepWhatTheJobGives) {
  const SmallJob small;
  for (const job::Job::Parallel& each : layouts_of(8, small.job, {.tp = 2}, small.config))
    EXPECT_EQ(each.tp, 2);
  job::Job ring = small.job;
  ring.parallel.prefill = parallel::PrefillMode::ring;
  for (const job::Job::Parallel& each : layouts_of(8, ring, {}, small.config)) {
    EXPECT_GT(*each.cp.degree, 1);
    EXPECT_EQ(each.prefill, ring.parallel.prefill);
  }
  EXPECT_TRUE(layouts_of(8, ring, {.cp = 1}, small.config).empty());
  EXPECT_TRUE(layouts_of(6, small.job, {.dp = 4}, small.config).empty());
}

TEST(Sweep, PruningKeepsTheBest) {
  const SmallJob small;
  for (const auto& prompts : {std::vector<int64_t>{1500}, std::vector<int64_t>{900, 300, 300, 200},
                              std::vector<int64_t>(12, 150)}) {
    Batches batches(requests_of(prompts, 10), small.config);
    PassCosts costs(small.scenario());
    SweepQuestion question;
    question.ranks = {1, 2, 4};
    const Sweep pruned = sweep(costs, batches, question);
    question.pruning = Pruning::none;
    const Sweep all = sweep(costs, batches, question);
    EXPECT_EQ(std::ssize(all.plans), all.counts.layouts);
    EXPECT_LT(pruned.plans.size(), all.plans.size());
    EXPECT_EQ(pruned.counts.layouts, pruned.counts.slower + std::ssize(pruned.plans));
    const auto best = best_ends(pruned);
    for (const auto& [ranks, end_s] : best_ends(all)) {
      EXPECT_LE(end_s, best.at(ranks));
      EXPECT_GE(end_s, (1 - least_gain) * best.at(ranks));  // teams that change gain less
    }
    const auto is_ring = [](const LayoutForecast& plan) { return !plan.resources.elastic; };
    EXPECT_EQ(std::ranges::find_if(all.plans, is_ring)->end->end_s,
              std::ranges::find_if(pruned.plans, is_ring)->end->end_s);
    EXPECT_TRUE(std::ranges::is_sorted(all.plans, {},
                                       [](const LayoutForecast& plan) { return plan.end->end_s; }));
  }
}

/// Random batches on random machines, of requests that are there or that arrive: what is left out is not
/// the best. Teams that change may be, where they gain less than `least_gain`.
TEST(Sweep, PruningKeepsTheBestOfAnyBatch) {
  std::mt19937 random(2);
  const auto up_to = [&](int64_t most) { return 1 + static_cast<int64_t>(random() % most); };
  for (int round = 0; round < 12; ++round) {
    SmallJob small;
    if (random() % 2 == 1)
      small.cluster.rank.first_touch_gbs = 1e-3 * static_cast<double>(up_to(1000));
    small.cluster.ranks_per_server = 1 << (random() % 4);
    for (cluster_files::Link& link : small.cluster.links)
      link = {0.05 * static_cast<double>(up_to(40)), static_cast<double>(up_to(40)),
              random() % 2 == 0};
    std::vector<schedule::SimulatedRequest> requests;
    const int64_t count = up_to(24), longest = up_to(1500), answers = up_to(40);
    while (std::ssize(requests) < count)
      requests.push_back({.turns = {{up_to(longest), up_to(answers)}}});
    auto arriving = requests;
    std::ranges::stable_sort(requests, std::ranges::greater(), [](const SimulatedRequest& request) {
      return request.turns.front().prompt_tokens;
    });
    double at_s = 0, apart_s = 2e-5 * static_cast<double>(longest * (1 + round % 5));
    for (SimulatedRequest& request : arriving) request.arrival_s = at_s, at_s += apart_s;
    for (const Aim aim : {Aim::batch_end, Aim::first_token}) {
      const bool arrive = aim == Aim::first_token;
      Batches batches(arrive ? arriving : requests, small.config);
      PassCosts costs(small.scenario());
      SweepQuestion question;
      question.ranks = {round % 4 == 3 ? 16 : 8};
      question.aim = aim;
      question.operations = 1e9;
      const Sweep pruned = sweep(costs, batches, question);
      question.pruning = Pruning::none;
      const Sweep all = sweep(costs, batches, question);
      const auto best_of = [&](const Sweep& of, bool elastic) {
        double best_s = std::numeric_limits<double>::infinity();
        for (const LayoutForecast& plan : of.plans)
          if (plan.end && plan.resources.elastic == elastic)
            best_s = std::min(best_s, plan.seconds(aim));
        return best_s;
      };
      EXPECT_EQ(best_of(pruned, false), best_of(all, false)) << "round " << round;
      EXPECT_GE(all.plans.front().seconds(aim),
                (1 - least_gain) * pruned.plans.front().seconds(aim))
          << "round " << round;
      EXPECT_LT(pruned.plans.size(), all.plans.size() + (arrive ? 1 : 0)) << "round " << round;
    }
  }
}

/// What may be spent decides what is played, and the best layout of all is found as nearly as one rank
/// can tell it.
TEST(Sweep, SpendsNoMoreThanItMay) {
  for (const bool shared : {false, true})
    for (const auto& prompts :
         {std::vector<int64_t>{1500}, std::vector<int64_t>{900, 300, 300, 200},
          std::vector<int64_t>(24, 150)}) {
      SmallJob small;
      for (cluster_files::Link& link : small.cluster.links) link.shared = shared;
      Batches batches(requests_of(prompts, 10), small.config);
      SweepQuestion question;
      question.ranks = {8};
      PassCosts all(small.scenario());
      const Sweep found = sweep(all, batches, question);
      for (const LayoutForecast& plan : found.plans) EXPECT_EQ(plan.fidelity, Fidelity::replayed);
      EXPECT_EQ(found.counts.open, 0);

      question.operations = 1e9;
      PassCosts enough(small.scenario());
      const Sweep same = sweep(enough, batches, question);
      EXPECT_EQ(same.plans.front().end->end_s, found.plans.front().end->end_s);
      EXPECT_EQ(same.passes, found.passes);

      question.operations = 30'000;
      PassCosts few(small.scenario());
      const Sweep some = sweep(few, batches, question);
      EXPECT_LT(some.passes, found.passes);
      EXPECT_EQ(some.counts.layouts,
                some.counts.slower + some.counts.open + std::ssize(some.plans));
      EXPECT_TRUE(std::ranges::any_of(some.plans, [](const LayoutForecast& plan) {
        return plan.fidelity == Fidelity::one_rank;
      }));
      const LayoutForecast really = forecast(all, batches, some.plans.front().parallel, 8);
      EXPECT_LE(really.end->end_s, 1.3 * found.plans.front().end->end_s) << prompts.size();

      question.operations = 0;
      PassCosts none(small.scenario());
      const Sweep one = sweep(none, batches, question);
      EXPECT_EQ(one.passes, 0);
      EXPECT_GT(one.counts.open, 0);
      EXPECT_GE(one.plans.size(), 1);
    }
}

TEST(Sweep, OfArrivalsSpendsNoMoreThanItMay) {
  SmallJob small;
  auto requests = requests_of(std::vector<int64_t>(24, 150), 10);
  for (size_t i = 0; i < requests.size(); ++i)
    requests[i].arrival_s = 0.01 * static_cast<double>(i);
  Batches batches(std::move(requests), small.config);
  PassCosts costs(small.scenario());
  SweepQuestion question;
  question.ranks = {8};
  question.aim = Aim::first_token;
  question.operations = 0;
  const Sweep found = sweep(costs, batches, question);
  EXPECT_EQ(found.passes, 0);
  EXPECT_GT(found.counts.open, 0);
  EXPECT_EQ(found.counts.layouts,
            found.counts.slower + found.counts.open + std::ssize(found.plans));
  EXPECT_GT(found.plans.front().seconds(Aim::first_token), 0);
}

TEST(Sweep, DividesMuchWorkByTheReplicas) {
  SmallJob small;
  Batches batches(requests_of(std::vector<int64_t>(16, 200), 5), small.config);
  PassCosts costs(small.scenario());
  SweepQuestion question;
  question.ranks = {1, 4};
  question.kept = {.cp = 1, .sp = 1, .tp = 1};
  const Sweep found = sweep(costs, batches, question);
  const auto ends = best_ends(found);
  EXPECT_NEAR(ends.at(4), ends.at(1) / 4, 0.05 * ends.at(1));
  const BatchEnd& end = *found.plans.front().end;
  EXPECT_EQ(found.plans.front().parallel.dp, 4);
  EXPECT_LE(end.soonest_s, end.end_s);
  EXPECT_GE(end.latest_s, end.end_s);
  EXPECT_NEAR((end.prefill.seconds + end.decode.seconds) / 4, end.busy * end.end_s,
              0.01 * end.end_s);
  EXPECT_EQ(end.prefill.sent_bytes[0] + end.prefill.sent_bytes[1], 0);  // replicas send nothing
}

TEST(Sweep, CountsTheBytesThatTravel) {
  SmallJob small;
  Batches batches(requests_of({240}, 1), small.config);  // one pass
  PassCosts costs(small.scenario());
  SweepQuestion question;
  question.ranks = {4};
  small.job.parallel.prefill = parallel::PrefillMode::ring;
  small.job.parallel.ring = parallel::AttentionExchange::pass_kv;
  question.kept = {.dp = 1, .sp = 1, .tp = 1};
  const Sweep found = sweep(costs, batches, question);
  const Grid ring{"pass_kv", 4};
  std::array<double, comm::num_link_levels> sent{};
  const auto all = programs(small.config, ring, ring.passes().feed(0, 1, 240), Layers::folded);
  for (int rank = 0; rank < 4; ++rank)
    for (size_t level = 0; level < sent.size(); ++level)
      sent[level] += rank_lower_bound(all[rank], rank, small.cluster).sent_bytes[level];
  ASSERT_GT(sent[0], 0);
  ASSERT_GT(sent[2], 0);  // each rack has one server
  const PassCost& prefill = found.plans.front().end->prefill;
  for (size_t level = 0; level < sent.size(); ++level)
    EXPECT_NEAR(prefill.sent_bytes[level], sent[level], 0.02 * sent[level]);
}

TEST(Sweep, SaysWhatDoesNotFitAndWhatWould) {
  SmallJob small;
  small.cluster.rank.memory_gib = 0.003;
  Batches batches(requests_of({2000}, 4), small.config);
  PassCosts costs(small.scenario());
  SweepQuestion question;
  question.ranks = {1};
  const Sweep found = sweep(costs, batches, question);
  ASSERT_EQ(found.plans.size(), 1);
  EXPECT_FALSE(found.plans.front().end);
  EXPECT_EQ(found.counts.too_large, 1);
  EXPECT_THAT(*found.plans.front().memory.why_not, HasSubstr("small"));
  const auto change = would_fit(costs.scenario(), batches, question.kept, 1);
  ASSERT_TRUE(change);
  EXPECT_THAT(*change, HasSubstr("--ranks"));
  const int ranks = std::stoi(change->substr(change->find(' ') + 1));
  EXPECT_FALSE(fits_somewhere(costs.scenario(), batches, {}, ranks / 2));
  EXPECT_TRUE(fits_somewhere(costs.scenario(), batches, {}, ranks));
}

TEST(RankMemory, IsThatOfAllLayers) {
  SmallJob small;
  small.cluster.rank.program_gib = 0.125;
  Batches batches(requests_of({500, 300}, 4), small.config);
  for (const job::Job::Parallel& parallel : layouts_of(4, small.job, {}, small.config)) {
    auto resources = layout_resources(small.scenario(), parallel, 4, batches);
    const RankMemory memory = rank_memory(small.scenario(), resources, batches.alone());
    // No pass has more than the batch's prompts, and no step more than its answers.
    resources.max_batch_tokens = std::min<int64_t>(resources.max_batch_tokens, 500 + 300);
    resources.max_sequences = std::min<int64_t>(resources.max_sequences, 2);
    const execute::RankNeeds needs =
        execute::needs_of_rank(0, small.job, small.config, resources, DType::fp32, {});
    EXPECT_EQ(memory.weight_bytes, needs.weight_bytes);
    EXPECT_EQ(memory.work_bytes, needs.work_bytes);
    EXPECT_FALSE(memory.why_not);
    EXPECT_EQ(memory.weight_bytes + memory.kv_bytes + memory.work_bytes + memory.free_bytes,
              int64_t{1} << 27)
        << "half of 256 MiB are the program's";
  }
}

TEST(Sweep, CountsTheTimeInWhichMemoryIsTouched) {
  const auto plan_of = [](double first_touch_gbs) {
    SmallJob small;
    small.cluster.rank.first_touch_gbs = first_touch_gbs;
    PassCosts costs(small.scenario());
    Batches batches(requests_of({500, 300}, 4), small.config);
    return forecast(costs, batches, {}, 1);
  };
  constexpr double gbs = 0.5;
  const LayoutForecast without = plan_of(0), with = plan_of(gbs);
  const auto bytes = static_cast<double>(with.memory.kv_bytes + with.memory.work_bytes);
  ASSERT_GT(bytes, 0);
  EXPECT_EQ(without.end->first_touch_s, 0);
  EXPECT_DOUBLE_EQ(with.end->first_touch_s, 1e-9 * bytes / gbs);
  EXPECT_DOUBLE_EQ(with.end->end_s, without.end->end_s + with.end->first_touch_s);
  EXPECT_DOUBLE_EQ(with.end->soonest_s, without.end->soonest_s + with.end->first_touch_s);
  EXPECT_DOUBLE_EQ(with.end->latest_s, without.end->latest_s + with.end->first_touch_s);
}

TEST(RankMemory, CountsATiedHeadThatIsPackedBesideItsTable) {
  SmallJob small;
  Batches batches(requests_of({500, 300}, 4), small.config);
  const auto weights = [&](bool is_tied, DType type) {
    small.config.tied_embeddings = is_tied;
    Scenario setting = small.scenario();
    setting.weights = type;
    setting.traits.operand_type = [](DType stored) { return stored; };
    const auto resources =
        layout_resources(setting, {.dp = 1, .cp = 1, .sp = 1, .tp = 1}, 1, batches);
    return rank_memory(setting, resources, batches.alone()).weight_bytes;
  };
  // Untied, the head is a matrix of its own, and only its panels stay.
  EXPECT_EQ(weights(true, DType::bf16), weights(false, DType::bf16));
  small.job.model.prepack = false;
  EXPECT_LT(weights(true, DType::bf16), weights(false, DType::bf16));
  small.job.model.prepack = {};
  EXPECT_LT(weights(true, DType::fp32), weights(false, DType::fp32));
}

TEST(Sweep, RefusesRanksThatNoGridFits) {
  SmallJob small;
  small.job.parallel.tp = 3;
  Batches batches(requests_of({100}, 4), small.config);
  PassCosts costs(small.scenario());
  SweepQuestion question;
  question.ranks = {3};
  question.kept = {.tp = 3};
  EXPECT_THROW(sweep(costs, batches, question), InputError);
}

TEST(Layouts, SayWhyThereIsNone) {
  const SmallJob small;
  EXPECT_THAT(why_no_layout(3, small.job, {.tp = 3}, small.config),
              HasSubstr("parallel.tp 3 does not divide the 8 query heads"));
  EXPECT_THAT(why_no_layout(6, small.job, {.dp = 4}, small.config),
              HasSubstr("no grid of 6 ranks has parallel.dp 4"));
  job::Job ring = small.job;
  ring.parallel.prefill = parallel::PrefillMode::ring;
  EXPECT_THAT(why_no_layout(8, ring, {.cp = 1}, small.config),
              HasSubstr("parallel.prefill ring needs cp above 1"));
}

}  // namespace
}  // namespace pecia::simulation
