// SPDX-License-Identifier: Apache-2.0
/// Decode passes of the CUDA backend, emulated, are graphs in which the transfers of several ranks
/// stand, and nothing changes by that. The same on GPUs, where the environment says that there are.

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>

#include "lib/model/config/config.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/work/resources/resources.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/same_bits.hpp"
#include "tests/support/two_servers.hpp"

namespace pecia::test {
namespace {

TEST(RankSteps, AreGraphsThatComeAgainAndGiveTheSameBits) {
  const auto all = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  if (all->size() > 2) GTEST_SKIP() << "two ranks have every kind of mode";
  const std::filesystem::path model = golden("llama-gqa-fp32");
  const bool on_gpus = place_of_tests() == TestPlace::cuda_nccl;
  std::vector<batch::Request> requests;
  for (const int64_t length : {40, 5})
    requests.push_back(greedy_request(static_cast<int64_t>(requests.size()),
                                      random_tokens(length, 96, static_cast<uint64_t>(length)),
                                      14));
  for (const parallel::ModePair& pair :
       parallel::legal_modes(all->size(), resources::shape_of(model::read_config(model)))) {
    SCOPED_TRACE(fmt::format("{}, {} + {}", parallel::to_string(pair.degrees),
                             parallel::name_of(pair.prefill), parallel::name_of(pair.decode)));
    ReplicaSettings settings;
    set_modes(settings, pair);
    settings.ring = parallel::AttentionExchange::pass_q;
    device::GraphCounts one_by_one, as_graphs;
    settings.place = on_gpus ? TestPlace::cuda_staged : TestPlace::emulated_staged;
    settings.graphs = &one_by_one;
    const auto wanted = run_requests(*all, model, requests, settings);
    settings.place = on_gpus ? TestPlace::cuda_nccl : TestPlace::emulated_nccl;
    settings.graphs = &as_graphs;
    expect_same_bits(run_requests(*all, model, requests, settings), wanted);
    if (all->size() > 1) {
      EXPECT_EQ(one_by_one.launched, 0) << "the host waits for these transfers";
    }
    EXPECT_GT(as_graphs.launched, 3 * as_graphs.made) << as_graphs.made;
    EXPECT_EQ(as_graphs.joint, all->size() > 1 ? as_graphs.launched : 0);
    EXPECT_EQ(as_graphs.why_not_joint, "");
  }
}

/// Products of heads, rotations within heads and attention to latents stand in graphs like other work.
TEST(RankSteps, OfLatentsAreGraphsThatGiveTheSameBits) {
  const auto all = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  if (all->size() > 2) GTEST_SKIP() << "two ranks have every kind of mode";
  for (const DType cached : {DType::fp32, DType::bf16}) {
    ReplicaSettings settings;
    settings.tp = all->size();
    settings.kv_dtype = cached;
    device::GraphCounts one_by_one, as_graphs;
    settings.place = TestPlace::emulated_staged;
    settings.graphs = &one_by_one;
    const std::vector requests = {greedy_request(0, random_tokens(40, 96, 1), 12),
                                  greedy_request(1, random_tokens(5, 96, 2), 12)};
    const auto wanted = run_requests(*all, golden("deepseek3-groups"), requests, settings);
    settings.place = TestPlace::emulated_nccl;
    settings.graphs = &as_graphs;
    expect_same_bits(run_requests(*all, golden("deepseek3-groups"), requests, settings), wanted);
    EXPECT_GT(as_graphs.launched, 2 * as_graphs.made) << as_graphs.made;
    EXPECT_EQ(as_graphs.joint, all->size() > 1 ? as_graphs.launched : 0);
    EXPECT_EQ(as_graphs.why_not_joint, "");
  }
}

/// Keys that go from server to server by relays, too.
TEST(RankSteps, HaveKeysByRelaysInTheirGraphs) {
  const auto all = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  if (all->size() != 4) GTEST_SKIP() << "two ranks of a server for each of two KV heads";
  device::GraphCounts direct, relayed;
  ReplicaSettings settings;
  settings.sp = all->size();
  settings.modes = parallel::pass_modes(
      {{1, settings.sp, 1}, parallel::PrefillMode::ulysses, parallel::DecodeMode::sp}, {});
  settings.places = two_servers(all->size());
  settings.place = TestPlace::emulated_nccl;
  settings.graphs = &direct;
  std::vector<batch::Request> two_of_each_rank;
  for (int64_t row = 0; row < 2 * all->size(); ++row)
    two_of_each_rank.push_back(greedy_request(row, random_tokens(9, 90, row), 14));
  const auto wanted = run_requests(*all, golden("llama-biases"), two_of_each_rank, settings);
  settings.link_costs = relays_pay;
  settings.graphs = &relayed;
  expect_same_bits(run_requests(*all, golden("llama-biases"), two_of_each_rank, settings), wanted);
  EXPECT_GT(relayed.launched, 3 * relayed.made);
  EXPECT_EQ(relayed.launched, direct.launched);
  EXPECT_EQ(relayed.joint, relayed.launched);
  EXPECT_EQ(relayed.why_not_joint, "");
}

/// Prompts are attended by levels, and answers see all keys: their steps are graphs as in any other
/// job, also where ranks take turns in having no rows. Passes by levels are none.
TEST(RankSteps, OfAnswersAfterPromptsByLevelsAreGraphs) {
  const auto all = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  if (all->size() == 1) GTEST_SKIP() << "one rank has no levels";
  const std::filesystem::path model = golden("llama-gqa-fp32");
  const bool on_gpus = place_of_tests() == TestPlace::cuda_nccl;
  std::vector<batch::Request> requests;
  for (const int64_t length : {30, 40})
    requests.push_back(greedy_request(static_cast<int64_t>(requests.size()),
                                      random_tokens(length, 96, static_cast<uint64_t>(length)),
                                      24));
  using Prefill = parallel::PrefillMode;
  for (const parallel::ModePair& pair :
       parallel::legal_modes(all->size(), resources::shape_of(model::read_config(model)))) {
    const auto& [cp, sp, tp, ep] = pair.degrees;
    const bool shares_tokens = pair.prefill == Prefill::ring;
    if (sp * ep > 1 || (shares_tokens ? tp > 1 : cp > 1)) continue;  // one group in each step
    if (pair.decode == parallel::DecodeMode::pass_q) continue;       // for its time
    SCOPED_TRACE(fmt::format("{}, {} + {}", parallel::to_string(pair.degrees),
                             parallel::name_of(pair.prefill), parallel::name_of(pair.decode)));
    int64_t by_levels = 0, steps = 0;
    device::GraphCounts graphs;
    ReplicaSettings settings;
    settings.tp = tp;
    settings.ep = ep;
    settings.modes = parallel::pass_modes(pair, {});
    settings.levels_from = 24;
    settings.sparse = {{parallel::Geometry::disjoint, 0.2}, {}, {}};
    settings.place = on_gpus ? TestPlace::cuda_staged : TestPlace::emulated_staged;
    const auto wanted = run_requests(*all, model, requests, settings);
    settings.place = on_gpus ? TestPlace::cuda_nccl : TestPlace::emulated_nccl;
    settings.graphs = &graphs;
    settings.on_plan = [&](const schedule::Plan& plan) {
      ++(plan.teams.front().ring == parallel::AttentionExchange::levels ? by_levels : steps);
    };
    expect_same_bits(run_requests(*all, model, requests, settings), wanted);
    EXPECT_EQ(by_levels, 1);
    EXPECT_EQ(steps, 23);
    EXPECT_EQ(graphs.launched + graphs.piecemeal, 2 * steps);
    EXPECT_EQ(graphs.joint, graphs.launched);
    EXPECT_GT(graphs.launched, 2 * graphs.made);
    EXPECT_EQ(graphs.why_not_joint, "");
  }
}

/// What a run on TP ranks does, where each sum stands in a graph or not; emulated, unless the
/// environment says that there are GPUs.
struct TensorParallelRun {
  explicit TensorParallelRun(comm::Communicator& all,
                             report::TraceDetail trace = report::TraceDetail::off) {
    settings.trace = trace;
    const std::filesystem::path model = golden("llama-gqa-fp32");
    settings.tp = all.size();
    settings.graphs = &graphs;
    settings.on_plan = [this](const schedule::Plan&) { ++steps; };
    results = run_requests(all, model, {greedy_request(0, random_tokens(20, 96, 1), 24)}, settings);
  }
  ReplicaSettings settings = [] {
    ReplicaSettings nccl;
    const bool on_gpus = place_of_tests() == TestPlace::cuda_nccl;
    nccl.place = on_gpus ? TestPlace::cuda_nccl : TestPlace::emulated_nccl;
    return nccl;
  }();
  device::GraphCounts graphs;
  int64_t steps = 0;
  std::map<int64_t, batch::Finished> results;
};

TEST(RankSteps, OfTensorParallelRanksAreTwoGraphsWithTheSumsInThem) {
  const auto all = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  if (all->size() == 1) GTEST_SKIP() << "one rank has no sums";
  const TensorParallelRun joint(*all);
  const device::GraphCounts& graphs = joint.graphs;
  EXPECT_EQ(graphs.launched + graphs.piecemeal, 2 * joint.steps);
  EXPECT_EQ(graphs.joint, graphs.launched);
  EXPECT_GT(graphs.joint, 3 * graphs.made);
  EXPECT_EQ(graphs.disagreed, 0);
  EXPECT_EQ(graphs.why_not_joint, "");

  // One rank is to make no graphs, so no rank has sums in them.
  if (all->rank() == 1) {
    ASSERT_EQ(::setenv("PECIA_CUDA_GRAPHS", "0", 1), 0);
  }
  const TensorParallelRun apart(*all);
  ASSERT_EQ(::unsetenv("PECIA_CUDA_GRAPHS"), 0);
  EXPECT_EQ(apart.graphs.joint, 0);
  EXPECT_EQ(apart.graphs.why_not_joint,
            fmt::format("rank 1 of {}: PECIA_CUDA_GRAPHS=0", all->size()));
  if (all->rank() != 1) {
    EXPECT_GT(apart.graphs.launched, 4 * joint.steps) << "what lies between two sums";
  }
  expect_same_bits(apart.results, joint.results);
}

/// Each wait has a time of its own then, so the ranks need not agree on anything.
TEST(RankSteps, OfTensorParallelRanksHaveNoSumsInGraphsWhereEachOpIsTimed) {
  const auto all = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  if (all->size() == 1) GTEST_SKIP() << "one rank has no sums";
  const TensorParallelRun timed(*all, report::TraceDetail::full);
  EXPECT_EQ(timed.graphs.joint, 0);
  EXPECT_EQ(timed.graphs.disagreed, 0);
  EXPECT_EQ(timed.graphs.why_not_joint, "");
  expect_same_bits(timed.results, TensorParallelRun(*all).results);
}

/// Prompts and answers of random lengths, so that sequences come and go at random times: of the
/// segments that are long enough for a graph, at most a twentieth takes more than launching one.
TEST(RankSteps, OfRandomLengthsAreGraphsOfBefore) {
  const auto all = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  if (all->size() > 1) GTEST_SKIP() << "one rank takes ten seconds, and more take longer";
  std::mt19937_64 random(7);
  const auto draw = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  std::vector<batch::Request> requests;
  for (int64_t row = 0; row < 8; ++row)
    requests.push_back(greedy_request(row,
                                      random_tokens(draw(1, 40), 96, static_cast<uint64_t>(row)),
                                      static_cast<int32_t>(draw(40, 110))));
  device::GraphCounts graphs;
  ReplicaSettings settings;
  settings.place = TestPlace::emulated_nccl;
  settings.max_sequences = 2;
  settings.graphs = &graphs;
  const auto results = run_requests(*all, golden("llama-gqa-fp32"), requests, settings);
  for (const auto& [row, finished] : results) EXPECT_EQ(finished.state, io::TurnState::done) << row;
  EXPECT_GT(graphs.launched, 200);
  EXPECT_LE(graphs.slow_share(), 0.05)
      << graphs.made << " made of " << graphs.launched << ", " << graphs.piecemeal << " piecemeal";
}

}  // namespace
}  // namespace pecia::test
