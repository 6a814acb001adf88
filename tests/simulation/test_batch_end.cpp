// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>

#include "lib/simulation/batch_end.hpp"
#include "lib/simulation/layout_forecast.hpp"
#include "tests/simulation/small_job.hpp"

namespace pecia::simulation {
namespace {

/// Branches may be in a pass together, and the slots of their stem are the same ones.
TEST(LeastEnd, OfForksIsNoLaterThanTheirEnd) {
  const SmallJob small;
  PassCosts costs(small.scenario());
  for (const int64_t of_stem : {0, 30}) {
    schedule::SimulatedRequest fork{io::Followup::fork, {{600, of_stem}}, {}};
    fork.turns.insert(fork.turns.end(), 40, {5, 12});
    const Batch batch({fork, fork}, small.config);
    EXPECT_EQ(batch.longest_sequence(), 600 + std::max<int64_t>(of_stem, 17));
    EXPECT_EQ(batch.cached().front(), 600 + of_stem + 40 * 17);
    resources::Resources resources = ring_of(2, 256);
    resources.kv_tokens = 1200;
    resources.max_sequences = 64;
    const ReplicaCostModel times(costs, resources, lengths_of(batch, resources),
                                 Fidelity::replayed);
    const BatchEnd end = play(batch, small.job, small.config, resources, times);
    EXPECT_EQ(end.refused, 0);
    EXPECT_LE(end_lower_bound_s(batch, resources, times), end.end_s);
  }
}

/// Answers yield: their keys are parked where that takes little time, and read again else.
TEST(BatchEnd, CountsTheTimeOfKeysThatAreParked) {
  const SmallJob small;
  PassCosts costs(small.scenario());
  std::vector<schedule::SimulatedRequest> requests(12, {io::Followup::chain, {{100, 200}}, {}});
  const Batch batch(std::move(requests), small.config);
  resources::Resources resources = ring_of(1, 256);
  resources.max_sequences = 12;
  resources.kv_tokens = 1500;
  const ReplicaCostModel times(costs, resources, lengths_of(batch, resources), Fidelity::replayed);
  const auto end_s = [&](double parking_s) {
    return play(batch, small.job, small.config, resources, times, parking_s).end_s;
  };
  EXPECT_GT(end_s(1e-9), end_s(0));
  EXPECT_LT(end_s(1e3), 2 * end_s(0)) << "nothing is parked";
}

TEST(ParkingSeconds, AreOfTheMemoryOrOfTheBus) {
  cluster_files::Cluster cluster = SmallJob().cluster;
  cluster.rank.memory_gbs = 10;
  cluster.links[static_cast<size_t>(comm::LinkLevel::rack)].gbs = 5;
  cluster.efficiency.copy = {.factor = 0.5};
  cluster.efficiency.send = {.factor = 0.8};
  cluster.rank.gpu = false;
  EXPECT_DOUBLE_EQ(parking_s(cluster, 1'000'000'000), 0.4) << "they are read and written";
  cluster.rank.gpu = true;
  EXPECT_DOUBLE_EQ(parking_s(cluster, 1'000'000'000), 0.25);
  cluster.rank.host_gbs = 50;
  EXPECT_DOUBLE_EQ(parking_s(cluster, 1'000'000'000), 0.025);
}

schedule::SimulatedRequest random_request(std::mt19937& random) {
  const auto up_to = [&](int64_t most) { return 1 + static_cast<int64_t>(random() % most); };
  schedule::SimulatedRequest request;
  if (up_to(3) == 1) request.followup = io::Followup::fork;
  const int64_t turns = request.followup == io::Followup::fork ? 1 + up_to(6) : up_to(3);
  for (int64_t turn = 0; turn < turns; ++turn)
    request.turns.push_back({turn == 0 ? up_to(900) : up_to(100), up_to(30) - 1});
  return request;
}

/// Chains and forks of any lengths, on replicas, on rings and in teams that change.
TEST(LeastEnd, IsNoLaterThanTheEndOfAnyBatch) {
  const SmallJob small;
  PassCosts costs(small.scenario());
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    std::vector<schedule::SimulatedRequest> requests;
    const size_t count = 1 + random() % 20;
    while (requests.size() < count) requests.push_back(random_request(random));
    const Batch batch(std::move(requests), small.config);
    resources::Resources resources = ring_of(1 << (random() % 3), 256);
    resources.dp = 1 + static_cast<int>(random() % 4);
    resources.max_sequences = 1 << (random() % 5);
    resources.kv_tokens = 3000;
    if (resources.cp > 1 && random() % 2 == 0) {
      resources.elastic = true;
      resources.max_instances = resources.cp;
      resources.ring = parallel::AttentionExchange::pass_kv;
      resources.decode = parallel::DecodeMode::broadcast_q;
      resources.max_sequences *= resources.cp;
    }
    const ReplicaCostModel times(costs, resources, lengths_of(batch, resources),
                                 Fidelity::replayed);
    const BatchEnd end = play(batch, small.job, small.config, resources, times);
    ASSERT_EQ(end.refused, 0);
    const double least_s = end_lower_bound_s(batch, resources, times);
    EXPECT_LE(least_s, end.end_s * (1 + 1e-9))
        << "round " << round << ", dp " << resources.dp << ", cp " << resources.cp
        << (resources.elastic ? ", teams" : "");
    EXPECT_GT(least_s, 0.2 * end.end_s);
  }
}

/// Four equal requests on three replicas end no sooner than two of them on one.
TEST(LeastEnd, KnowsThatAReplicaHasWholeRequests) {
  const SmallJob small;
  PassCosts costs(small.scenario());
  resources::Resources resources = ring_of(1, 256);
  resources.dp = 3;
  resources.max_sequences = 8;
  resources.kv_tokens = 8000;
  const auto least = [&](size_t count) {
    const Batch batch(requests_of(std::vector<int64_t>(count, 1000), 1), small.config);
    return end_lower_bound_s(batch, resources,
                             {costs, resources, {1000, 2, 8, 1000}, Fidelity::replayed});
  };
  EXPECT_NEAR(least(4), 2 * least(3), 0.1 * least(4));
  EXPECT_NEAR(least(6), least(4), 0.01 * least(4));
  EXPECT_NEAR(least(7), 1.5 * least(4), 0.1 * least(4));
}

/// A step has a row on some instance, however many there are.
TEST(LeastEnd, OfAnAnswerOnARingIsThatOfItsSteps) {
  const SmallJob small;
  PassCosts costs(small.scenario());
  resources::Resources resources = ring_of(4, 256);
  resources.max_sequences = 1;
  resources.kv_tokens = 2000;
  const Batch batch(requests_of({100}, 400), small.config);
  const ReplicaCostModel times(costs, resources, lengths_of(batch, resources), Fidelity::replayed);
  const BatchEnd end = play(batch, small.job, small.config, resources, times);
  EXPECT_NEAR(end_lower_bound_s(batch, resources, times), end.end_s, 0.01 * end.end_s);
}

}  // namespace
}  // namespace pecia::simulation
