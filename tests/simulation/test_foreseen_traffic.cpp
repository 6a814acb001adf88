// SPDX-License-Identifier: Apache-2.0
/// What the foreseen programs of ranks send is what the ranks send.

#include <gtest/gtest.h>
#include <mpi.h>

#include <numeric>

#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/simulation/replica_program.hpp"
#include "tests/simulation/small_cluster.hpp"
#include "tests/support/deep_model.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/owned_compute.hpp"

namespace pecia::test {
namespace {

using simulation::Program;

using Sent = std::array<int64_t, comm::num_link_levels>;

/// A replica of all ranks of the world, here and as it is foreseen.
class BothReplicas {
 public:
  BothReplicas(comm::Communicator& world, const std::filesystem::path& model, const job::Job& job,
               const resources::Resources& resources, const cluster_files::Cluster& cluster)
      : rank_(world.rank()),
        config_(model::read_config(model)),
        job_(job),
        resources_(resources),
        cluster_(cluster),
        weights_(
            config_, io::Checkpoint(model), {},
            execute::Replica::weight_cut(world.rank(), resources.sp, resources.tp, resources.ep)),
        replica_(world, config_, weights_, compute_,
                 simulation::settings_of(scenario(), resources_, world.rank(), 4096, 0).replica) {}

  simulation::Scenario scenario() const { return {job_, config_, cluster_, DType::fp32}; }
  execute::TrialPasses passes() const {
    return simulation::passes_of(
        scenario(), resources_,
        parallel::pass_modes({resources_.degrees(), resources_.prefill, resources_.decode}, {}),
        parallel::AttentionExchange::pass_kv, resources_.max_batch_tokens);
  }

  /// Executes what is told apart from what it follows: the sequence is known here already.
  void expect_traffic_of(schedule::Plan told, int64_t slots) {
    const Program program = simulation::programs_of(scenario(), resources_, told).at(rank_);
    comm::Traffic foreseen;
    for (const simulation::Section& section : program)
      for (const simulation::Step& step : section.steps)
        if (const auto* start = std::get_if<comm::PhantomStart>(&step.what))
          for (const comm::PhantomMessage& message : start->sends) {
            const auto level = static_cast<size_t>(
                comm::link_level(cluster_.place(rank_), cluster_.place(message.peer)));
            foreseen.messages_by_level[level] += section.times;
            foreseen.bytes_by_level[level] += section.times * message.bytes;
          }
    told.number = number_++;
    if (number_ == 1)
      told.added[0].state.reserved.assign(resources_.cp, slots);
    else
      told.added.clear();
    const comm::Traffic before = attention::traffic_of(replica_.groups());
    replica_.execute(told);
    const comm::Traffic after = attention::traffic_of(replica_.groups());
    for (size_t level = 0; level < comm::num_link_levels; ++level) {
      SCOPED_TRACE(comm::link_level_names[level]);
      EXPECT_EQ(foreseen.messages_by_level[level],
                after.messages_by_level[level] - before.messages_by_level[level]);
      EXPECT_EQ(foreseen.bytes_by_level[level],
                after.bytes_by_level[level] - before.bytes_by_level[level]);
      sent_[level] += foreseen.bytes_by_level[level];
    }
  }

  /// Bytes by level.
  const Sent& sent() const { return sent_; }

 private:
  int rank_;
  model::ModelConfig config_;
  job::Job job_;
  resources::Resources resources_;
  cluster_files::Cluster cluster_;
  model::Weights weights_;
  CpuCompute compute_;
  execute::Replica replica_;
  int64_t number_ = 0;
  Sent sent_{};
};

/// Two whole chunks of a prompt, its rest, and a step of its answer.
Sent expect_traffic_on(const cluster_files::Cluster& cluster, comm::Communicator& world,
                       const job::Job& job, const resources::Resources& resources,
                       const char* model = "llama-gqa-fp32", int64_t layers = 7) {
  const TempFolder deep;
  write_deep_model(model, layers, deep);
  BothReplicas both(world, deep.path(), job, resources, cluster);
  const execute::TrialPasses passes = both.passes();
  const int64_t chunk = resources.max_batch_tokens, rest = 77;
  const int64_t slots = 3 * chunk / resources.cp / 8 * 8;
  both.expect_traffic_of(passes.feed(0, 1, chunk, 0, false), slots);
  both.expect_traffic_of(passes.feed(0, 1, chunk, chunk, false), slots);
  both.expect_traffic_of(passes.feed(0, 1, rest, 2 * chunk), slots);
  both.expect_traffic_of(passes.step(0, 1, 2 * chunk + rest, true), slots);
  return both.sent();
}

int64_t expect_traffic_of_a_request(comm::Communicator& world, const job::Job& job,
                                    const resources::Resources& resources) {
  const Sent sent = expect_traffic_on(simulation::small_cluster(), world, job, resources);
  return std::accumulate(sent.begin(), sent.end(), int64_t{0});
}

std::unique_ptr<comm::Communicator> world() {
  return comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
}

TEST(ForeseenTraffic, IsThatOfSparseAttentionByLevels) {
  const auto comm = world();
  std::vector<int64_t> sent;
  for (const auto& [drop, wire] :
       {std::pair(0.0, DType::fp32), {0.5, DType::fp32}, {0.5, DType::bf16}}) {
    SCOPED_TRACE(fmt::format("{}, {}", drop, name_of(wire)));
    resources::Resources resources = simulation::ring_of(comm->size(), 600);
    resources.sparse = {{parallel::Geometry::disjoint, drop}, {}, {}};
    resources.wire = wire;
    sent.push_back(expect_traffic_of_a_request(*comm, {}, resources));
  }
  EXPECT_NE(sent[0], sent[1]);
  EXPECT_LT(sent[2], sent[1]);
}

/// Latents travel once for all heads, and absorbed queries are as wide as they. Layers may have heads
/// of their own, or attend what others store. Where experts are dealt out, rows go where they choose,
/// which a phantom does not know.
class EveryModeOf : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(ForeseenTraffic, EveryModeOf,
                         testing::Values("deepseek3-groups", "gemma4-shared-keys",
                                         "gemma4-keys-as-values"));

TEST_P(EveryModeOf, SendsWhatIsForeseen) {
  const auto comm = world();
  const char* const model = GetParam();
  const model::ModelConfig config = model::read_config(golden(model));
  for (const parallel::ModePair& pair :
       parallel::legal_modes(comm->size(), resources::shape_of(config)))
    for (const DType kv : {DType::fp32, DType::fp8}) {
      SCOPED_TRACE(fmt::format("{}, {} + {}, {}", to_string(pair.degrees),
                               parallel::name_of(pair.prefill), parallel::name_of(pair.decode),
                               name_of(kv)));
      if (pair.degrees.ep > 1) continue;
      resources::Resources resources = simulation::ring_of(pair.degrees.cp, 600);
      resources.sp = pair.degrees.sp, resources.tp = pair.degrees.tp;
      resources.prefill = pair.prefill, resources.decode = pair.decode;
      resources.kv_dtype = kv;
      expect_traffic_on(simulation::small_cluster(), *comm, {}, resources, model, config.layers);
    }
}

/// Queries, outputs, gathers and sums have half the bytes; keys travel as the cache has them.
TEST(ForeseenTraffic, IsThatOfEveryModeForEveryWire) {
  const auto comm = world();
  const model::ModelConfig config = model::read_config(golden("llama-gqa-fp32"));
  for (const parallel::ModePair& pair :
       parallel::legal_modes(comm->size(), resources::shape_of(config))) {
    SCOPED_TRACE(fmt::format("{}, {} + {}", to_string(pair.degrees),
                             parallel::name_of(pair.prefill), parallel::name_of(pair.decode)));
    resources::Resources resources = simulation::ring_of(pair.degrees.cp, 600);
    resources.sp = pair.degrees.sp, resources.tp = pair.degrees.tp, resources.ep = pair.degrees.ep;
    resources.prefill = pair.prefill, resources.decode = pair.decode;
    const int64_t whole = expect_traffic_of_a_request(*comm, {}, resources);
    resources.wire = DType::bf16;
    const int64_t rounded = expect_traffic_of_a_request(*comm, {}, resources);
    if (comm->size() > 1) {
      EXPECT_LT(rounded, whole);
    }
    if (pair.degrees.cp == 1) {
      EXPECT_LT(rounded, 0.7 * static_cast<double>(whole));
    }
  }
}

/// Two KV heads on 4 ranks, two servers of two. Where links between servers are the slower ones, a
/// row's keys and values cross once in place of twice, and one rank passes them on to the other.
TEST(ForeseenTraffic, IsThatOfKeysThatGoByRelays) {
  const auto comm = world();
  if (comm->size() != 4) GTEST_SKIP() << "two servers of two ranks";
  resources::Resources resources = simulation::ring_of(1, 600);
  resources.sp = comm->size();
  resources.prefill = parallel::PrefillMode::ulysses, resources.decode = parallel::DecodeMode::sp;
  cluster_files::Cluster cluster = simulation::small_cluster();
  const auto of_all_ranks = [&] {
    std::vector<double> sum;
    for (const int64_t sent : expect_traffic_on(cluster, *comm, {}, resources, "llama-biases"))
      sum.push_back(comm->all_reduce_sum(static_cast<double>(sent)));
    return sum;
  };
  const std::vector<double> relayed = of_all_ranks();
  cluster.links.fill(cluster.links.front());
  const std::vector<double> direct = of_all_ranks();
  const model::ModelConfig config = model::read_config(golden("llama-biases"));
  ASSERT_EQ(config.num_kv_heads, 2);
  const int64_t rows = 600 + 600 + 77, layers = 7;  // and one in a step, which is too short
  const auto saved =
      static_cast<double>(rows * layers * config.head_dim * 2 * size_of(DType::fp32));
  EXPECT_EQ(relayed.front() - direct.front(), saved);
  EXPECT_EQ(direct.back() - relayed.back(), saved) << "each server is a rack of its own";
}

TEST(ForeseenTraffic, IsThatOfLevelsWithTensorParallelismAlone) {
  const auto comm = world();
  resources::Resources resources = simulation::ring_of(1, 600);
  resources.tp = comm->size();
  resources.prefill = parallel::PrefillMode::tp, resources.decode = parallel::DecodeMode::tp;
  resources.sparse = {{parallel::Geometry::disjoint, 0.3}, {}, parallel::Micros{1}};
  EXPECT_GT(expect_traffic_of_a_request(*comm, {}, resources), 0);
}

/// A prompt that all instances but the last read, whose keys go to the last one. `ends`: its state, too.
schedule::Plan read_for_the_last(int instances, int64_t tokens, bool ends) {
  parallel::KvMap map(instances);
  std::vector<int64_t> reading(instances, tokens), answering(instances);
  std::swap(reading.back(), answering.back());
  map.add(0, reading);
  map.add(1, answering);
  schedule::Plan plan;
  const int32_t last = instances - 1;
  parallel::Team& team = plan.teams.emplace_back();
  for (int32_t instance = 0; instance < last; ++instance) team.instances.push_back(instance);
  plan.added = {{0, map.state(0)}};
  plan.receiving = {{last}, {}, {{1, map.state(1)}}, {}};
  schedule::PlanItem& item = plan.items.emplace_back();
  item.rows = {0, 0, tokens};
  item.tokens.resize(tokens);
  item.prompt_end = item.longest = tokens;
  map.append(item.rows, team);
  plan.receiving.copies = parallel::key_copies(map, 0, 1, 0, {{last, tokens}}, ends);
  return plan;
}

TEST(ForeseenTraffic, IsThatOfKeysAndStatesThatGoToThoseWhoAnswer) {
  const auto comm = world();
  if (comm->size() == 1) GTEST_SKIP() << "there is nobody else to answer";
  const std::filesystem::path model = golden("qwen35-tied");
  const model::ModelConfig config = model::read_config(model);
  resources::Resources resources = simulation::ring_of(comm->size(), 600);
  resources.elastic = true, resources.answering = 1, resources.wire = DType::fp32;
  const cluster_files::Cluster cluster = simulation::small_cluster();
  const job::Job job;
  const simulation::Scenario scenario{job, config, cluster, DType::fp32};
  const model::Weights weights(config, io::Checkpoint(model), {},
                               execute::Replica::weight_cut(comm->rank(), 1, 1, 1));
  std::array<double, 2> sent{};
  for (const bool ends : {false, true}) {
    const schedule::Plan plan = read_for_the_last(comm->size(), 50, ends);
    int64_t foreseen = 0;
    const Program program = simulation::programs_of(scenario, resources, plan).at(comm->rank());
    for (const simulation::Section& section : program)
      for (const simulation::Step& step : section.steps)
        if (const auto* start = std::get_if<comm::PhantomStart>(&step.what))
          for (const comm::PhantomMessage& message : start->sends)
            foreseen += section.times * message.bytes;
    CpuCompute compute;
    auto settings = simulation::settings_of(scenario, resources, comm->rank(), 400, 0).replica;
    settings.states = 2, settings.states_may_be_any = false;
    execute::Replica replica(*comm, config, weights, compute, settings);
    const comm::Traffic before = attention::traffic_of(replica.groups());
    replica.execute(plan);
    replica.finish_copies();
    const comm::Traffic after = attention::traffic_of(replica.groups());
    int64_t found = 0;
    for (size_t level = 0; level < comm::num_link_levels; ++level)
      found += after.bytes_by_level[level] - before.bytes_by_level[level];
    EXPECT_EQ(foreseen, found);
    sent[ends ? 1 : 0] = comm->all_reduce_sum(static_cast<double>(found));
  }
  EXPECT_GT(sent[0], 0);
  EXPECT_EQ(sent[1] - sent[0], static_cast<double>(config.state_bytes()));
}

TEST(ForeseenTraffic, IsThatOfTheSameBitsEverywhere) {
  const auto comm = world();
  job::Job job;
  job.reproducible = parallel::Reproducible::layout;
  resources::Resources ring = simulation::ring_of(comm->size(), 600);
  EXPECT_GT(expect_traffic_of_a_request(*comm, job, ring), 0);
  resources::Resources both = simulation::ring_of(comm->size() / 2, 600);
  both.tp = 2;
  if (both.cp == 1)
    both.prefill = parallel::PrefillMode::tp, both.decode = parallel::DecodeMode::tp;
  EXPECT_GT(expect_traffic_of_a_request(*comm, job, both), 0);
}

}  // namespace
}  // namespace pecia::test
