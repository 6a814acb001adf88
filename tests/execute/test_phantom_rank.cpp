// SPDX-License-Identifier: Apache-2.0
/// Ranks of machines that no test has, against the papers' formulas. That phantoms send what real
/// ranks send, test_replica says.

#include <gtest/gtest.h>

#include <chrono>

#include "lib/base/core/error.hpp"
#include "lib/engine/execute/phantom_rank.hpp"

namespace pecia::execute {
namespace {

using parallel::AttentionExchange;
using parallel::PassSequence;
using parallel::Sharding;

model::ModelConfig llama_405b() {
  model::ModelConfig config;
  config.vocab = 128256, config.hidden = 16384, config.ffn = 53248, config.layers = 126;
  config.num_heads = 128, config.num_kv_heads = 8, config.head_dim = 128;
  config.rope.rotary_dim = 128;
  config.max_positions = 1 << 20;
  config.pattern.resize(config.layers);
  return config;
}

/// A GPU's rank of CP × TP, weights in fp8, keys and values in bf16.
PhantomSettings gpu_of(int cp, int tp, int rank, int64_t kv_tokens) {
  return {.ranks = cp * tp,
          .rank = rank,
          .quantize = model::Quantize::fp8,
          .device = {"H100", 90, 132, "", ""},
          .memory_bytes = int64_t{80} << 30,
          .traits = {[](DType) { return DType::bf16; }},
          .replica = {.tp = tp, .kv_dtype = DType::bf16, .kv_tokens = kv_tokens}};
}

schedule::Plan prefill(int cp, int64_t tokens, int64_t slots, AttentionExchange ring) {
  schedule::Plan plan;
  plan.teams = {parallel::team_of_all(cp, ring)};
  plan.added.push_back(
      {0, {schedule::NewSequence::no_parent, 0, std::vector<int64_t>(cp, slots), {}}});
  plan.turns.push_back({0, {}, 0, tokens});
  plan.items.push_back(
      {{0, 0, tokens, PassSequence::balanced}, std::vector<int32_t>(tokens, 1), tokens, -1});
  return plan;
}

/// Each of four stages has a quarter of the keys, and weights that one rank has no room for.
TEST(PhantomRank, OfAStageHoldsItsLayersAndSendsItsRows) {
  const model::ModelConfig config = llama_405b();
  constexpr int stages = 4, tp = 2;
  constexpr int64_t tokens = 4096;
  int64_t keys = 0, weights = 0;
  for (int stage = 0; stage < stages; ++stage) {
    PhantomSettings settings = gpu_of(1, tp, stage * tp, tokens);
    settings.ranks = stages * tp;
    settings.replica.stages = stages;
    PhantomRank phantom(config, settings);
    keys += phantom.replica().cache().bytes();
    weights += phantom.peak_bytes() - phantom.replica().cache().bytes();
    phantom.execute(prefill(1, tokens, tokens, AttentionExchange::pass_kv));
    EXPECT_EQ(phantom.replica().groups().line->traffic().bytes,
              stage < stages - 1 ? tokens * config.hidden * 2 : 0);
  }
  const int64_t parameters = config.parameters() / tp;
  EXPECT_EQ(keys, tokens * config.kv_bytes_per_token(DType::bf16, tp));
  EXPECT_NEAR(static_cast<double>(weights), static_cast<double>(parameters),
              0.03 * static_cast<double>(parameters))
      << "a byte each, but for the embedding and scales";
  PhantomSettings whole = gpu_of(1, tp, 0, tokens);
  EXPECT_THROW(PhantomRank(config, whole), SystemError) << "one rank's memory";
}

/// 128 000 tokens on 128 GPUs (Context Parallelism …, §4).
TEST(PhantomRank, OfALargeGridSendsWhatThePapersSay) {
  const model::ModelConfig config = llama_405b();
  constexpr int cp = 16, tp = 8;
  constexpr int64_t tokens = 128'000, own = tokens / cp;
  // The sums of GPUs are of bf16, as the paper's, unless the job says otherwise.
  for (const auto& [rank, wire] : std::vector<std::pair<int, std::optional<DType>>>{
           {0, {}}, {77, {}}, {127, {}}, {77, DType::fp32}}) {
    PhantomSettings settings = gpu_of(cp, tp, rank, own);
    settings.replica.wire = wire;
    PhantomRank phantom(config, settings);
    const auto begin = std::chrono::steady_clock::now();
    phantom.execute(prefill(cp, tokens, own, AttentionExchange::pass_kv));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    RecordProperty("seconds", std::to_string(seconds.count()));

    const attention::ReplicaGroups& groups = phantom.replica().groups();
    // Alg. 2: a KV head's keys and values of a rank go N − 1 times to the next one.
    EXPECT_EQ(groups.ring->traffic().messages, config.layers * (cp - 1));
    EXPECT_EQ(groups.ring->traffic().bytes, config.layers * (cp - 1) * own * 2 *
                                                (config.num_kv_heads / tp) * config.head_dim * 2);
    // Megatron: two sums a layer and one of the embedding, each a reduce-scatter and an all-gather,
    // of which (N − 1) / N travel. Nobody asks for a row's output, so the last layer has no sums.
    const int64_t sums = 2 * (config.layers - 1) + 1, bytes = wire ? 4 : 2;
    EXPECT_EQ(groups.tp->traffic().bytes, sums * 2 * (own * config.hidden * bytes) * (tp - 1) / tp);
    EXPECT_EQ(groups.sp->traffic().bytes, 0);

    // 2 FLOPs for each weight and row; 4 · D for each pair and head, of half of all pairs.
    const double layer = 2.0 * config.hidden * config.hidden +
                         2.0 * config.hidden * config.num_kv_heads * config.head_dim +
                         3.0 * config.hidden * config.ffn;
    const double products = own * (2.0 * config.layers * layer - config.flops_after_mixers()) / tp;
    const double pairs = 0.5 * tokens * (tokens + 1.0);
    const double attention =
        4.0 * pairs / cp * config.layers * config.num_heads / tp * config.head_dim;
    EXPECT_NEAR(phantom.work().flops, products + attention, 0.001 * (products + attention));
  }
}

/// Qwen3-30B-A3B, but for its number of layers.
model::ModelConfig mixture() {
  model::ModelConfig config;
  config.vocab = 151936, config.hidden = 2048, config.ffn = 6144, config.layers = 4;
  config.num_heads = 32, config.num_kv_heads = 4, config.head_dim = 128;
  config.rope.rotary_dim = 128;
  config.max_positions = 1 << 20;
  config.experts = {.count = 128, .per_token = 8, .ffn = 768};
  config.pattern.assign(config.layers, {.feed_forward = model::FeedForward::experts});
  return config;
}

TEST(PhantomRank, CountsTheExpertsThatTokensTake) {
  const model::ModelConfig config = mixture();
  // Nobody asks for a row's output, so all rows end after the last layer's attention.
  const double layer_products =
      config.flops_per_token() - 2.0 * config.vocab * config.hidden - config.flops_after_mixers();
  for (const int tp : {1, 4}) {
    PhantomSettings settings = gpu_of(1, tp, 0, 8192);
    settings.quantize = model::Quantize::nothing;
    settings.weights = DType::bf16;
    PhantomRank phantom(config, settings);
    const double weights = 2.0 * static_cast<double>(config.parameters()) / tp;
    EXPECT_GT(static_cast<double>(phantom.peak_bytes()), weights) << "all experts are there";

    constexpr int64_t tokens = 1000;
    phantom.execute(prefill(1, tokens, 8192, AttentionExchange::pass_kv));
    const double attention =
        4.0 * 0.5 * tokens * (tokens + 1.0) * config.layers * config.num_heads * config.head_dim;
    const double router = 2.0 * (config.layers - 1) * config.hidden * 128;  // whole on every rank
    const double expected = ((layer_products - router) * tokens + attention) / tp + router * tokens;
    EXPECT_NEAR(phantom.work().flops / expected, 1, 0.001);
  }
}

/// Rows choose at random, so a row takes one of the 32 experts of another rank with probability
/// 1 − (3/4)⁸, nearly, and goes there once.
TEST(PhantomRank, SendsEachRowOnceToTheRanksOfItsExperts) {
  const model::ModelConfig config = mixture();
  constexpr int64_t tokens = 4000, ranks = 4;
  double sent = 0, flops = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    PhantomSettings settings = gpu_of(1, 1, rank, 8192);
    settings.ranks = ranks;
    settings.quantize = model::Quantize::nothing;
    settings.replica.sp = ranks, settings.replica.ep = ranks;
    PhantomRank phantom(config, settings);
    EXPECT_LT(static_cast<double>(phantom.peak_bytes()),
              0.55 * 2 * static_cast<double>(config.parameters()))
        << "a rank has a quarter of the experts";
    phantom.execute(prefill(1, tokens, 8192, AttentionExchange::pass_kv));
    sent += static_cast<double>(phantom.replica().groups().sp->traffic().bytes);
    flops += phantom.work().flops;
    settings.replica.ep = 1;
    PhantomRank without(config, settings);
    without.execute(prefill(1, tokens, 8192, AttentionExchange::pass_kv));
    sent -= static_cast<double>(without.replica().groups().sp->traffic().bytes);
    flops -= without.work().flops;
  }
  const double taken = 1 - std::pow(0.75, 8);
  const double row_bytes = (2.0 + 2.0) * config.hidden;  // there, and sums back
  const double choices = 8.0 * 8;
  const int64_t layers = config.layers - 1;  // as nobody asks for a row's output
  const double wanted = layers * tokens * (ranks - 1) * (taken * row_bytes + choices);
  EXPECT_NEAR(sent / wanted, 1, 0.02);
  EXPECT_NEAR(flops / (config.flops_per_token() * tokens), 0, 0.001) << "no row is left out";
}

TEST(PhantomRank, NeedsTheMemoryThatTheMachineHas) {
  const model::ModelConfig config = llama_405b();
  PhantomSettings settings = gpu_of(1, 8, 3, 100'000);
  PhantomRank fits(config, settings);
  const double weights = static_cast<double>(config.parameters()) / 8;
  EXPECT_GT(static_cast<double>(fits.peak_bytes()), weights);
  EXPECT_LT(static_cast<double>(fits.peak_bytes()), weights + 8e9 + 1e5 * 2 * 126 * 128 * 2 + 4e9);
  settings.replica.kv_tokens = 2'000'000;
  EXPECT_THROW(PhantomRank(config, settings), SystemError) << "128 GB of keys and values";
  settings.replica.kv_tokens = 1000;
  settings.quantize = model::Quantize::nothing;
  EXPECT_THROW(PhantomRank(config, settings), SystemError) << "101 GB of weights in bf16";
}

TEST(PhantomRankDeathTest, HasMemoryThatNobodyCanRead) {
  device::PhantomDevice device({"phantom", 0, 1, "", ""}, 1 << 20);
  const device::Buffer buffer(device, device::Memory::device, 4096);
  EXPECT_EQ(device.used_bytes(), 4096);
  EXPECT_DEATH(*buffer.as<volatile char>() = 1, "");
}

}  // namespace
}  // namespace pecia::execute
