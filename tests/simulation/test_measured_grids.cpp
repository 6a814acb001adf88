// SPDX-License-Identifier: Apache-2.0
/// What was measured over slow links (apps/results/epyc-2cores-modes.md, "Slow links between
/// racks"): the cost model and the rules name the faster side wherever the two sides differ by more
/// than 5 %.

#include <gtest/gtest.h>

#include "lib/engine/execute/rank_needs.hpp"
#include "lib/ranks/parallel/ring_rule.hpp"
#include "lib/ranks/parallel/shift_rule.hpp"
#include "lib/simulation/request_latency.hpp"
#include "tests/simulation/small_cluster.hpp"
#include "tests/simulation/small_grid.hpp"

namespace pecia::simulation {
namespace {

/// What the ranks measured of themselves: FLOP/s of attention, B/s round the ring and all to all.
constexpr parallel::RingRates rates{75e9, 46e6, 30e6};
constexpr double margin = 1.05;

/// Four servers of one rank in two racks, with 1000 Mbit/s to each and 400 Mbit/s between the racks.
/// Four ranks share two cores. Shares are those of the ranks' rates and of single stages: lm_head
/// read 14 GB/s, smaller matrices 10, attention of answers 3.5; pecia-bench comm's sums had 0.95 of what
/// the links carry for short messages and 0.75 for long ones.
cluster_files::Cluster slow_racks() {
  cluster_files::Cluster cluster;
  cluster.ranks_per_server = 1, cluster.servers_per_rack = 2;
  cluster.rank = {"half a core", false, {{DType::bf16, 150e9}}, 14, 4};
  cluster.links = {cluster_files::Link{1, 5, false}, cluster_files::Link{0.125, 15, false},
                   cluster_files::Link{0.05, 30, true}};
  const auto by_bytes = [](std::vector<cluster_files::Curve::Point> points) {
    return cluster_files::Efficiency{1, {{cluster_files::Axis::bytes, std::move(points)}}};
  };
  cluster.efficiency = {{0.8},
                        {rates.flops / 150e9},
                        by_bytes({{4e6, 0.7}, {3e7, 1}}),
                        {rates.bandwidth / 50e6},
                        by_bytes({{16384, 0.95}, {65536, 0.75}}),
                        cluster_files::Efficiency{0.25}};
  cluster.overhead = {.op_us = 5, .step_us = 600};
  return cluster;
}

model::ModelConfig two_layers() {
  model::ModelConfig config;
  config.vocab = 32768, config.hidden = 512, config.ffn = 2048, config.layers = 2;
  config.num_heads = 8, config.num_kv_heads = 4, config.head_dim = 64;
  config.rope.rotary_dim = 64;
  config.max_positions = 1 << 20;
  config.pattern.resize(config.layers);
  return config;
}

/// All activations travelled in fp32 when this was measured.
job::Job job_of_then() {
  job::Job job;
  job.model.wire = job::Precision::fp32;
  return job;
}

PassCosts costs_over_slow_racks(const job::Job& job, const model::ModelConfig& config,
                                const cluster_files::Cluster& cluster) {
  return PassCosts(
      {job, config, cluster, DType::bf16, DType::bf16, [](DType) { return DType::bf16; }});
}

TEST(MeasuredGrids, OfPartialPrefillsHaveTheRingThatWasFaster) {
  struct Cell {
    int64_t new_tokens;
    double kv_ms, q_ms;  // pass-KV, pass-Q
  };
  constexpr Cell cells[] = {{82, 288, 22},    {164, 293, 42},    {410, 308, 98},
                            {819, 346, 199},  {1638, 337, 398},  {2458, 370, 576},
                            {4096, 512, 939}, {6144, 679, 1421}, {8192, 804, 1786}};
  const job::Job job = job_of_then();
  const model::ModelConfig config = two_layers();
  const cluster_files::Cluster cluster = slow_racks();
  PassCosts costs = costs_over_slow_racks(job, config, cluster);
  int decided = 0;
  for (const Cell& cell : cells) {
    const int64_t cached = 8192 - cell.new_tokens;
    const auto foreseen_s = [&](parallel::AttentionExchange ring) {
      resources::Resources resources = ring_of(4, 8192);
      resources.ring = ring;
      return request_latency(costs, resources, {cell.new_tokens, cached, 1}).ttft_s;
    };
    const double kv_s = foreseen_s(parallel::AttentionExchange::pass_kv);
    const double q_s = foreseen_s(parallel::AttentionExchange::pass_q);
    if (cell.kv_ms > margin * cell.q_ms) {
      EXPECT_LT(q_s, kv_s) << cell.new_tokens;
    }
    if (cell.q_ms > margin * cell.kv_ms) {
      EXPECT_LT(kv_s, q_s) << cell.new_tokens;
    }

    parallel::RingInputs in{{}, 4, {8, 4, 2, 2, 4}, rates};
    in.load.add(cell.new_tokens, cached);
    const parallel::AttentionExchange by_rule = parallel::rule_b(in).ring;
    if (kv_s > margin * q_s) {
      EXPECT_EQ(by_rule, parallel::AttentionExchange::pass_q) << cell.new_tokens;
    }
    if (q_s > margin * kv_s) {
      EXPECT_EQ(by_rule, parallel::AttentionExchange::pass_kv) << cell.new_tokens;
    }
    decided += kv_s > margin * q_s || q_s > margin * kv_s;
  }
  EXPECT_GE(decided, 8) << "the model decides nearly all cells";
}

/// At 8 sequences the two rounds of the measurement do not agree on the faster side.
TEST(MeasuredGrids, OfDecodeStepsHaveTheConfigurationThatWasFaster) {
  struct Cell {
    int64_t batch;
    double base_ms, shift_ms;
  };
  constexpr Cell cells[] = {{1, 3.81, 2.89},  {2, 5.75, 3.81},    {4, 6.19, 4.49},
                            {16, 8.49, 9.58}, {32, 15.26, 17.87}, {64, 23.72, 34.99}};
  const job::Job job = job_of_then();
  const model::ModelConfig config = two_layers();
  const cluster_files::Cluster cluster = slow_racks();
  PassCosts costs = costs_over_slow_racks(job, config, cluster);
  const int64_t of_layer = 2 * 512 * (8 + 4) * 64 + 3 * 512 * 2048, of_vocabulary = 512 * 32768;
  const parallel::ShiftInputs in{.layer_elements = of_layer,
                                 .vocab_elements = of_vocabulary,
                                 .weight_bytes = 2,
                                 .vocab_bytes = 2,
                                 .layers = config.layers,
                                 .sp = 4,
                                 .tp = 1,
                                 .sent = execute::sent_per_token(config, 4, 1),
                                 .flops = 120e9,
                                 .read_bandwidth = 14e9,
                                 .link_bandwidth = rates.all_to_all_bandwidth,
                                 .exchange_s = 3e-4};
  int decided = 0;
  for (const Cell& cell : cells) {
    const auto foreseen_s = [&](parallel::Sharding sharding) {
      return costs
          .replayed({.kind = schedule::PassKind::decode,
                     .degrees = {1, 4, 1},
                     .sharding = sharding,
                     .sequences = cell.batch,
                     .cached = 512})
          .seconds;
    };
    const double base_s = foreseen_s(parallel::Sharding::base);
    const double shift_s = foreseen_s(parallel::Sharding::shift);
    const bool by_rule = cell.batch <= parallel::shift_threshold(in, 64);
    if (cell.base_ms > margin * cell.shift_ms) {
      EXPECT_LT(shift_s, base_s) << cell.batch;
    }
    if (cell.shift_ms > margin * cell.base_ms) {
      EXPECT_LT(base_s, shift_s) << cell.batch;
    }
    if (base_s > margin * shift_s) {
      EXPECT_TRUE(by_rule) << cell.batch;
    }
    if (shift_s > margin * base_s) {
      EXPECT_FALSE(by_rule) << cell.batch;
    }
    decided += base_s > margin * shift_s || shift_s > margin * base_s;
  }
  EXPECT_GE(decided, 5) << "the model decides nearly all cells";
}

/// What the ranks measured of themselves there when experts were measured: products of few rows are
/// the share of two cores that read 40 GB/s.
cluster_files::Cluster slow_racks_of_packed_weights() {
  cluster_files::Cluster cluster = slow_racks();
  cluster.rank.flops = {{DType::bf16, 500e9}};
  cluster.rank.memory_gbs = 42, cluster.rank.alone = 1.9;
  cluster.efficiency.gemm = {
      0.62,
      {{cluster_files::Axis::rows, {{1, 0.047}, {2, 0.088}, {8, 0.34}, {32, 0.81}, {256, 1}}}}};
  cluster.efficiency.copy = {0.69};
  return cluster;
}

/// With SP a rank has all experts (EP 1) or every fourth (EP 4). With TP the two sides differ by at
/// most 5 %, or the rounds do not agree.
TEST(MeasuredGrids, OfExpertsHaveTheDegreeThatWasFaster) {
  struct Cell {
    schedule::PassKind kind;
    int64_t sequences, tokens;
    double ep1_ms, ep4_ms;
  };
  using enum schedule::PassKind;
  constexpr Cell cells[] = {
      {prefill, 1, 512, 45, 97}, {prefill, 1, 2048, 189, 402}, {decode, 128, 1, 20.6, 27.6}};
  const job::Job job = job_of_then();
  model::ModelConfig config = two_layers();
  config.experts = {
      .count = 16, .per_token = 4, .ffn = 512, .routing = kernels::Routing::of_chosen};
  for (model::LayerConfig& layer : config.pattern) layer.feed_forward = model::FeedForward::experts;
  const cluster_files::Cluster cluster = slow_racks_of_packed_weights();
  PassCosts costs = costs_over_slow_racks(job, config, cluster);
  model::ModelConfig last_layer = config;
  last_layer.layers = 1, last_layer.pattern.pop_back();
  PassCosts of_last_layer = costs_over_slow_racks(job, last_layer, cluster);
  for (const Cell& cell : cells) {
    const auto foreseen_s = [&](int ep) {
      const PassShape shape{.kind = cell.kind,
                            .degrees = {1, 4, 1, ep},
                            .sequences = cell.sequences,
                            .tokens = cell.tokens,
                            .cached = cell.kind == decode ? 512 : 0};
      const double all_s = costs.replayed(shape).seconds;
      // When these were measured, all rows of prompts went to experts in the last layer, too.
      return cell.kind == decode ? all_s : 2 * (all_s - of_last_layer.replayed(shape).seconds);
    };
    const double ep1_s = foreseen_s(1), ep4_s = foreseen_s(4);
    EXPECT_GT(ep4_s, margin * ep1_s) << cell.sequences << " × " << cell.tokens;
    EXPECT_NEAR(ep1_s, 1e-3 * cell.ep1_ms, 0.15e-3 * cell.ep1_ms) << cell.sequences;
    EXPECT_NEAR(ep4_s, 1e-3 * cell.ep4_ms, 0.25e-3 * cell.ep4_ms) << cell.sequences;
  }
}

}  // namespace
}  // namespace pecia::simulation
