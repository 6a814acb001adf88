// SPDX-License-Identifier: Apache-2.0
/// One rank's machinery driven plan by plan: what travels, and what stays where it is.

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstring>
#include <map>
#include <set>
#include <tuple>

#include "lib/engine/execute/phantom_rank.hpp"
#include "lib/model/config/stage.hpp"
#include "lib/ranks/comm/mpi_communicator.hpp"
#include "lib/ranks/parallel/heads.hpp"
#include "lib/ranks/parallel/stages.hpp"
#include "tests/support/block_formulas.hpp"
#include "tests/support/deep_model.hpp"
#include "tests/support/goldens.hpp"
#include "tests/support/owned_compute.hpp"
#include "tests/support/replica.hpp"
#include "tests/support/ring_formulas.hpp"
#include "tests/support/two_servers.hpp"

namespace pecia::test {
namespace {

using parallel::AttentionExchange;
using parallel::Geometry;
using parallel::PassSequence;
using parallel::Sharding;

/// A model of 8 heads over 4 KV heads on a grid of the world's ranks.
class Machine {
 public:
  Machine(comm::Communicator& world, int sp, int tp)
      : Machine(world, golden("llama-gqa-fp32"), {.sp = sp, .tp = tp, .kv_tokens = 5000}) {}

  /// The same of another model.
  Machine(comm::Communicator& world, const std::filesystem::path& model,
          const execute::Replica::Settings& settings)
      : whole_(model::read_config(model)),
        config_(model::stage_of(
            whole_, settings.stages,
            parallel::stage_place(world.rank(), world.size(), settings.stages).stage)),
        weights_(whole_, io::Checkpoint(model), {},
                 execute::Replica::weight_cut(world.rank(), settings.sp, settings.tp, settings.ep),
                 {}, config_.stage),
        replica_(world, config_, weights_, compute_, settings),
        phantom_(whole_, {.ranks = world.size(),
                          .rank = world.rank(),
                          .weights = DType::fp32,
                          .memory_bytes = int64_t{1} << 30,
                          .traits = {.recurrence_pace =
                                         [this](int64_t key_dim, int64_t value_dim) {
                                           return compute_.backend->recurrence_pace(
                                               key_dim, value_dim, *compute_.stream);
                                         }},
                          .replica = settings}) {}

  /// Feeds the next `count` tokens of sequence 0; nothing is sampled.
  void feed(int64_t count, AttentionExchange ring, Sharding sharding,
            int32_t owner = PassSequence::balanced) {
    schedule::Plan plan;
    plan.number = number_++;
    plan.teams = {parallel::team_of_all(instances(), ring, sharding)};
    if (length_ == 0) {
      plan.added.push_back({0, {schedule::NewSequence::no_parent, 0, on_each(4000), {}}, 0});
      plan.turns.push_back({0, {}, 0, 1 << 20});
    }
    plan.items.push_back(
        {{0, length_, count, owner}, random_tokens(count, 96, 7), int64_t{1} << 20, -1});
    ask_for_outputs(plan);
    execute(plan);
    length_ += count;
  }

  /// Feeds three tokens each to `count` new sequences and samples by the params, which go round:
  /// tokens and log-probabilities by sequence, of the rows that this rank samples.
  std::map<int32_t, std::pair<int32_t, float>> sample(
      int64_t count, Sharding sharding, const std::vector<kernels::SamplingParams>& params) {
    schedule::Plan plan;
    plan.number = number_++;
    plan.teams = {parallel::team_of_all(instances(), AttentionExchange::pass_kv, sharding)};
    for (int64_t i = 0; i < count; ++i) {
      const int64_t sequence = next_sequence_++;
      plan.added.push_back({sequence, {schedule::NewSequence::no_parent, 0, on_each(3), {}}, 1});
      plan.turns.push_back({sequence, params[i % params.size()], static_cast<uint64_t>(i), 3});
      plan.items.push_back({{sequence, 0, 3, PassSequence::balanced},
                            random_tokens(3, 96, static_cast<uint64_t>(i)),
                            3,
                            0});
    }
    ask_for_outputs(plan);
    const schedule::LogProbs sampled = execute(plan).sampled;
    std::map<int32_t, std::pair<int32_t, float>> found;
    for (size_t i = 0; i < sampled.which.size(); ++i)
      found[sampled.which[i]] = {sampled.tokens[i], sampled.logprobs[i]};
    return found;
  }

  int instances() const { return replica_.groups().cp; }
  std::vector<int64_t> on_each(int64_t slots) const {
    return std::vector<int64_t>(instances(), slots);
  }

  /// The tokens of all ranks' rows.
  static std::map<int32_t, int32_t> chosen_by_all(
      comm::Communicator& world, const std::map<int32_t, std::pair<int32_t, float>>& mine) {
    std::vector<int32_t> pairs;
    for (const auto& [row, choice] : mine) pairs.insert(pairs.end(), {row, choice.first});
    std::map<int32_t, int32_t> chosen;
    for (const auto& bytes : world.all_gather(std::as_bytes(std::span(pairs)))) {
      const auto* of_rank = reinterpret_cast<const int32_t*>(bytes.data());
      for (size_t i = 0; i < bytes.size() / sizeof(int32_t); i += 2)
        chosen[of_rank[i]] = of_rank[i + 1];
    }
    return chosen;
  }

  /// Bytes of keys and values of the first `count` tokens that this rank holds.
  std::vector<float> cached(int64_t count) {
    std::vector<float> values;
    const attention::KvShape& shape = replica_.cache().shape();
    for (int64_t layer = 0; layer < shape.layers; ++layer)
      for (const TensorView& tensor :
           {replica_.cache().k(layer).vectors, replica_.cache().v(layer).vectors})
        for (int64_t head = 0; head < shape.num_kv_heads; ++head) {
          int64_t left = count;
          for (const parallel::SlotRange& slots : replica_.cache().slots(0))
            for (int64_t slot = slots.begin; slot < slots.end && left > 0; ++slot, --left) {
              const float* row =
                  static_cast<const float*>(tensor.row(head)) + slot * shape.head_dim;
              values.insert(values.end(), row, row + shape.head_dim);
            }
        }
    return values;
  }

  int64_t block_bytes() const {
    const attention::ReplicaGroups& groups = replica_.groups();
    return groups.sp->traffic().bytes + groups.tp->traffic().bytes + groups.block->traffic().bytes;
  }
  int64_t block_bytes(comm::LinkLevel level) const {
    const attention::ReplicaGroups& groups = replica_.groups();
    int64_t bytes = 0;
    for (const auto* group : {&groups.sp, &groups.tp, &groups.block})
      bytes += (*group)->traffic().bytes_by_level[static_cast<size_t>(level)];
    return bytes;
  }
  parallel::BlockShape shape() const {
    return {config_.hidden,       config_.ffn,      config_.num_heads,
            config_.num_kv_heads, config_.head_dim, 4};
  }
  const model::ModelConfig& config() const { return config_; }
  execute::Replica& replica() { return replica_; }
  int64_t num_spans(std::string_view name) const {
    int64_t count = 0;
    for (const report::Stage& stage : compute_.recorder.stages())
      if (stage.name == name) count += stage.count;
    return count;
  }

 private:
  /// Of all rows, so that all go through the whole last layer.
  static void ask_for_outputs(schedule::Plan& plan) {
    for (size_t i = 0; i < plan.items.size(); ++i) {
      const parallel::PassSequence& rows = plan.items[i].rows;
      plan.pools.push_back({static_cast<int32_t>(i), 0, rows.first, rows.first + rows.count});
    }
  }
  /// Whatever the test is about, a phantom of this rank sends what the rank does.
  schedule::Outcome execute(const schedule::Plan& plan) {
    schedule::Outcome outcome = replica_.execute(plan);
    phantom_.execute(plan);
    const attention::ReplicaGroups &here = replica_.groups(), &there = phantom_.replica().groups();
    for (const auto group : {&attention::ReplicaGroups::ring, &attention::ReplicaGroups::sp,
                             &attention::ReplicaGroups::tp, &attention::ReplicaGroups::block}) {
      const comm::Traffic real = (here.*group)->traffic(), phantom = (there.*group)->traffic();
      EXPECT_EQ(phantom.messages, real.messages);
      EXPECT_EQ(phantom.bytes, real.bytes);
      EXPECT_EQ(phantom.bytes_by_level, real.bytes_by_level);
    }
    if (here.line) {
      EXPECT_EQ(there.line->traffic().messages, here.line->traffic().messages);
      EXPECT_EQ(there.line->traffic().bytes, here.line->traffic().bytes);
    }
    EXPECT_EQ(phantom_.replica().cache().bytes(), replica_.cache().bytes());
    return outcome;
  }

  model::ModelConfig whole_, config_;  ///< of the model, and of the rank's stage
  model::Weights weights_;
  CpuCompute compute_;
  execute::Replica replica_;
  execute::PhantomRank phantom_;
  int64_t length_ = 0, number_ = 0, next_sequence_ = 1;
};

/// Rows of each kind of pass, in each of the stages.
TEST(Stages, SendTheirRowsToTheSamePlaceInTheNextOne) {
  const auto world = comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
  for (int stages = 2; stages <= std::min(4, world->size()); ++stages) {
    if (world->size() % stages != 0) continue;
    const int of_stage = world->size() / stages;
    for (const int tp : {1, of_stage}) {
      SCOPED_TRACE(fmt::format("PP {} × TP {}", stages, tp));
      Machine machine(*world, golden("llama4-chunks"),
                      {.stages = stages, .tp = tp, .kv_tokens = 5000});
      const attention::ReplicaGroups& groups = machine.replica().groups();
      const bool sends = groups.stage < stages - 1;
      const int64_t row = machine.config().hidden * 4;
      machine.feed(24, AttentionExchange::pass_kv, Sharding::base);
      EXPECT_EQ(groups.line->traffic().bytes, sends ? 24 / groups.cp * row : 0);
      EXPECT_EQ(groups.line->traffic().messages, sends ? 1 : 0);
      machine.feed(1, AttentionExchange::pass_q, Sharding::base, 0);
      const bool owns = groups.cp_index == 0;
      EXPECT_EQ(groups.line->traffic().messages, sends ? 1 + owns : 0);
      machine.replica().finish_copies();
    }
  }
}

std::unique_ptr<comm::Communicator> world() {
  return comm::make_mpi_communicator(MPI_COMM_WORLD, std::chrono::seconds(60));
}

TEST(Replica, SendsInItsBlockWhatTheFormulasSay) {
  const auto comm = world();
  for (const int tp : {1, 2, 4, 8})
    for (const int sp : {1, 2, 4, 8}) {
      if (comm->size() % (sp * tp) != 0 || sp * tp > 8) continue;
      for (const Sharding sharding :
           {Sharding::base, Sharding::sp_tp, Sharding::shift, Sharding::gathered}) {
        if (tp == 1 && (sharding == Sharding::sp_tp || sharding == Sharding::gathered)) continue;
        for (const int64_t tokens : {64, 61, 1, 2051}) {
          SCOPED_TRACE(fmt::format("SP {} × TP {}, sharding {}, {} tokens", sp, tp,
                                   static_cast<int>(sharding), tokens));
          Machine machine(*comm, sp, tp);
          const int64_t before = machine.block_bytes();
          machine.feed(tokens, AttentionExchange::pass_kv, sharding);
          const auto rows = static_cast<int64_t>(machine.replica().attention().positions().size());
          const parallel::BlockPlace place = machine.replica().groups().place;
          const int64_t layers = machine.config().layers *
                                 layer_traffic(machine.shape(), sharding, place, rows).total();
          EXPECT_EQ(machine.block_bytes() - before,
                    layers + embedding_traffic(machine.shape(), sharding, place, rows));
        }
      }
    }
}

TEST(Replica, SendsShortlistsOfLogitsWhereTheyDo) {
  const auto comm = world();
  const int ranks = comm->size();
  if (8 % ranks != 0) return;  // heads
  using kernels::SamplingParams;
  const SamplingParams greedy, penalised{.repetition_penalty = 1.2f, .presence_penalty = 0.3f};
  const SamplingParams of_two{.temperature = 0.7f, .top_k = 2, .repetition_penalty = 1.2f};
  // The most likely token as well, but found among all of them.
  const SamplingParams whole{.temperature = 1.0f, .top_p = 1e-6f};
  for (const auto& [sp, tp, sharding] :
       {std::tuple(1, ranks, Sharding::base), std::tuple(ranks, 1, Sharding::shift)})
    for (const int64_t rows : {1, 5, 24}) {
      SCOPED_TRACE(fmt::format("SP {} × TP {}, {} rows", sp, tp, rows));
      Machine machine(*comm, sp, tp);
      const parallel::BlockPlace place = machine.replica().groups().place;
      const parallel::WeightCut cut = weight_cut(sharding, place);
      const auto sends = [&](const std::vector<SamplingParams>& params, int64_t logits_bytes) {
        const int64_t before = machine.block_bytes();
        const auto found = machine.sample(rows, sharding, params);
        EXPECT_EQ(machine.block_bytes() - before,
                  machine.config().layers *
                          layer_traffic(machine.shape(), sharding, place, 3 * rows).total() +
                      embedding_traffic(machine.shape(), sharding, place, 3 * rows) + logits_bytes);
        return found;
      };
      const int64_t part_bytes = 4 * 96 / ranks;
      const auto short_way = sends({greedy}, logits_traffic(rows, cut, 8 + 12));
      const auto whole_way = sends({whole}, logits_traffic(rows, cut, part_bytes));
      const auto both_ways = sends({greedy, whole}, logits_traffic((rows + 1) / 2, cut, 8 + 12) +
                                                        logits_traffic(rows / 2, cut, part_bytes));
      const auto all = machine.chosen_by_all(*comm, whole_way);
      EXPECT_EQ(all.size(), static_cast<size_t>(rows));
      EXPECT_EQ(machine.chosen_by_all(*comm, short_way), all);
      EXPECT_EQ(machine.chosen_by_all(*comm, both_ways), all);
      for (const auto& [row, choice] : short_way) {
        EXPECT_TRUE(whole_way.contains(row)) << "whose rows are whose";
        if (!whole_way.contains(row)) continue;
        EXPECT_NEAR(choice.second, whole_way.at(row).second, 2e-6);
      }
      sends({penalised}, logits_traffic(rows, cut, 8 + 12));
      sends({of_two}, logits_traffic(rows, cut, 8 + 2 * 12));
    }
}

TEST(Replica, SendsRoundTheRingWhatItExpects) {
  const auto comm = world();
  for (const AttentionExchange ring :
       {AttentionExchange::pass_kv, AttentionExchange::pass_q, AttentionExchange::broadcast_q}) {
    Machine machine(*comm, comm->size() % 2 == 0 ? 2 : 1, 1);
    const auto sent = [&] { return machine.replica().groups().ring->traffic().bytes; };
    const int instances = machine.replica().groups().cp;
    int64_t length = 0;
    for (const int64_t tokens : {61, 7, 1}) {
      const int64_t before = sent();
      const int32_t owner = tokens == 1 ? 0 : PassSequence::balanced;
      machine.feed(tokens, ring, Sharding::base, owner);
      const attention::KvShape& cache = machine.replica().cache().shape();
      const int64_t group = machine.config().num_heads / machine.config().num_kv_heads;
      EXPECT_EQ(
          sent() - before,
          machine.config().layers *
              ring_bytes({{parallel::team_of_all(instances, ring), {{0, length, tokens, owner}}}},
                         machine.replica().attention().ledger().map(),
                         machine.replica().groups().cp_index,
                         {cache.num_kv_heads * group, cache.num_kv_heads, cache.head_dim,
                          cache.layer_bytes_per_token()}));
      length += tokens;
    }
  }
}

/// Layers with a window of 16 beside others, on one and on several ranks of a block: on many ranks
/// short prompts go round the ring, and long ones send their halo.
TEST(Replica, SendsInLayersWithAWindowWhatItExpects) {
  const auto comm = world();
  for (const char* model : {"gemma3-windows", "olmo3-window-yarn", "mistral-window16",
                            "llama4-chunks", "gemma4-keys-as-values", "gemma4-shared-keys"})
    for (const AttentionExchange ring :
         {AttentionExchange::pass_kv, AttentionExchange::pass_q, AttentionExchange::broadcast_q}) {
      SCOPED_TRACE(model);
      Machine machine(*comm, golden(model),
                      {.sp = comm->size() % 2 == 0 ? 2 : 1, .tp = 1, .kv_tokens = 5000});
      const auto sent = [&] { return machine.replica().groups().ring->traffic().bytes; };
      int64_t length = 0;
      for (const int64_t tokens : {61, 611, 7, 1}) {
        const int64_t before = sent();
        const int32_t owner = tokens == 1 ? 0 : PassSequence::balanced;
        machine.feed(tokens, ring, Sharding::base, owner);
        int64_t expected = 0;
        for (int64_t layer = 0; layer < machine.config().layers; ++layer) {
          const attention::KvShape& cache = machine.replica().cache().shape(layer);
          const int64_t group = machine.config().num_heads / machine.config().heads(layer).count;
          expected += ring_bytes(
              {{parallel::team_of_all(machine.instances(), ring), {{0, length, tokens, owner}}}},
              machine.replica().attention().ledger().map(), machine.replica().groups().cp_index,
              {cache.num_kv_heads * group, cache.num_kv_heads, cache.head_dim,
               cache.layer_bytes_per_token(), false, machine.config().pattern[layer].window});
        }
        EXPECT_EQ(sent() - before, expected);
        length += tokens;
      }
    }
}

/// Of five layers, of which the middle three drop. execute compares with a phantom. With TP alone the
/// ranks tell each other numbers of tokens, also where they hold the same KV head.
TEST(Replica, SendsByLevelsWhatItsPhantomSends) {
  const auto comm = world();
  const TempFolder deep;
  write_deep_model("llama-gqa-fp32", 5, deep);
  for (const int tp : std::set{1, 2, comm->size()}) {
    if (comm->size() % tp != 0 || !parallel::can_shard_heads(8, 4, tp)) continue;
    execute::Replica::Settings settings{.tp = tp, .kv_tokens = 5000};
    const int of_part = comm->size() > tp ? tp : 1;
    for (int rank = 0; rank < comm->size(); ++rank)
      settings.places.push_back(
          {std::to_string(rank / of_part / 4), std::to_string(rank / of_part / 2), rank});
    for (const Geometry geometry : {Geometry::disjoint, Geometry::nested})
      for (const int micro : {1, 2}) {
        std::map<double, int64_t> sent;
        for (const double drop : {0.0, 0.5}) {
          SCOPED_TRACE(fmt::format("TP {}, geometry {}, drop {}, in {}", tp,
                                   static_cast<int>(geometry), drop, micro));
          settings.sparse = {{geometry, drop}, {}, parallel::Micros{micro}};
          Machine machine(*comm, deep.path(), settings);
          machine.feed(61, AttentionExchange::pass_kv, Sharding::base);
          const int64_t before = machine.replica().groups().ring->traffic().bytes;
          machine.feed(301, AttentionExchange::levels, Sharding::base, PassSequence::contiguous);
          machine.feed(1, AttentionExchange::broadcast_q, Sharding::base, 0);
          machine.feed(130, AttentionExchange::levels, Sharding::base, PassSequence::contiguous);
          sent[drop] = machine.replica().groups().ring->traffic().bytes - before;
        }
        if (comm->size() > tp) {
          EXPECT_NE(sent[0.5], sent[0]) << "nothing was dropped";
        }
      }
  }
}

/// In each sharding whose tensors are gathered or summed. execute compares with a phantom.
TEST(Replica, SendsByRacksWhatItsPhantomSends) {
  const auto comm = world();
  if (comm->size() % 4 != 0) GTEST_SKIP() << "four servers in two racks";
  for (const int sp : {1, 2}) {
    execute::Replica::Settings settings{.sp = sp, .tp = comm->size() / sp, .kv_tokens = 5000};
    settings.places = two_racks(comm->size());
    std::map<Sharding, std::vector<int64_t>> between_racks;
    for (const parallel::LinkCosts& costs : {parallel::LinkCosts(), racks_pay}) {
      settings.link_costs = costs;
      Machine machine(*comm, golden("llama-gqa-fp32"), settings);
      for (const Sharding sharding : {Sharding::base, Sharding::gathered, Sharding::shift}) {
        const auto sent = [&] { return machine.block_bytes(comm::LinkLevel::system); };
        const int64_t before = sent();
        machine.feed(61, AttentionExchange::pass_kv, sharding);
        between_racks[sharding].push_back(
            static_cast<int64_t>(comm->all_reduce_sum(static_cast<double>(sent() - before))));
      }
    }
    for (const auto& [sharding, bytes] : between_racks) {
      SCOPED_TRACE(fmt::format("SP {}, sharding {}", sp, static_cast<int>(sharding)));
      EXPECT_LE(bytes.at(1), bytes.at(0));
      if (sharding != Sharding::shift || sp == 1) continue;
      EXPECT_EQ(2 * bytes.at(1), bytes.at(0)) << "sums cross to one of two servers";
    }
  }
}

/// Where messages take no time, a state travels in groups of its heads, and the recurrence runs once
/// for each.
TEST(Replica, PassesStatesOnInGroupsOfHeadsWhereMessagesAreShort) {
  const auto comm = world();
  if (comm->size() == 1) GTEST_SKIP() << "one rank passes no state on";
  std::map<double, int64_t> runs;
  for (const double exchange_s : {1e-9, 1.0}) {
    execute::Replica::Settings settings{.kv_tokens = 5000, .states = 2};
    settings.link_costs.exchange_s = exchange_s;
    Machine machine(*comm, golden("qwen35-tied"), settings);
    machine.feed(61, AttentionExchange::pass_kv, Sharding::base);
    runs[exchange_s] = static_cast<int64_t>(
        comm->all_reduce_sum(static_cast<double>(machine.num_spans("recurrence"))));
  }
  EXPECT_GT(runs.at(1e-9), runs.at(1.0));
}

/// Two levels, KV heads that the ranks divide: each rank attends all rows of its heads, as in
/// Ulysses. The first part's rows see no other part, and no part sees the keys of the last one.
TEST(Replica, SendsByLevelsWhatTheFormulaSays) {
  const auto comm = world();
  const int ranks = comm->size();
  const std::filesystem::path model = golden("llama-gqa-fp32");
  const model::ModelConfig config = model::read_config(model);
  if (config.num_kv_heads % ranks != 0) return;
  const int64_t rows = 40, heads = config.num_kv_heads / ranks;
  const int64_t group = config.num_heads / config.num_kv_heads, width = config.head_dim;
  for (const int micro : {1, 3}) {
    Machine machine(
        *comm, model,
        {.kv_tokens = 5000, .sparse = {{{Geometry::disjoint, 0}, {}, parallel::Micros{micro}}}});
    machine.feed(rows * ranks, AttentionExchange::levels, Sharding::base, PassSequence::contiguous);
    int64_t numbers = 0;  // of a row and a KV head
    for (int to = 0; to < ranks; ++to) {
      const int from = comm->rank();
      if (to == from) continue;
      if (from + 1 < ranks) numbers += 2 * width;
      if (from > 0) numbers += group * width;
      if (to > 0) numbers += group * (width + 1);  // results of its rows
    }
    EXPECT_EQ(machine.replica().groups().ring->traffic().bytes,
              config.layers * rows * heads * numbers * size_of(DType::fp32));
  }
}

TEST(Replica, ShiftingMovesNoKeysAndKeepsTheSameWeights) {
  const auto comm = world();
  const int sp = comm->size() % 2 == 0 ? comm->size() / (comm->size() % 4 == 0 ? 2 : 1) : 1;
  const int tp = comm->size() / sp;
  if (sp * tp > 8 || 8 % (sp * tp) != 0) return;  // 8 heads
  Machine machine(*comm, sp, tp);
  machine.feed(50, AttentionExchange::pass_kv, Sharding::base);
  const std::vector<float> prefilled = machine.cached(50);
  EXPECT_EQ(prefilled.size(), 2u * 2 * machine.replica().cache().shape().num_kv_heads * 50 * 8);
  machine.feed(1, AttentionExchange::pass_kv, Sharding::shift, 0);
  machine.feed(1, AttentionExchange::pass_kv, Sharding::shift, 0);
  EXPECT_EQ(machine.cached(50), prefilled);
  const std::vector<float> shifted = machine.cached(52);
  machine.feed(20, AttentionExchange::pass_kv, Sharding::base);
  EXPECT_EQ(machine.cached(52), shifted);
  EXPECT_NE(shifted.back(), 0.0f);
}

}  // namespace
}  // namespace pecia::test
