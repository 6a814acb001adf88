// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/engine/execute/rank_needs.hpp"
#include "lib/model/layers/model.hpp"

namespace pecia::execute {
namespace {

model::ModelConfig small_model() {
  model::ModelConfig config;
  config.vocab = 512, config.hidden = 64, config.ffn = 128, config.layers = 3;
  config.num_heads = 8, config.num_kv_heads = 4, config.head_dim = 8;
  config.rope.rotary_dim = 8;
  config.max_positions = 4096;
  config.pattern.resize(config.layers);
  return config;
}

resources::Resources resources_of(int cp, int sp, int tp) {
  resources::Resources resources;
  resources.cp = cp, resources.sp = sp, resources.tp = tp;
  resources.prefill = cp > 1   ? parallel::PrefillMode::ring
                      : tp > 1 ? parallel::PrefillMode::tp
                      : sp > 1 ? parallel::PrefillMode::ulysses
                               : parallel::PrefillMode::single;
  resources.decode = cp > 1   ? parallel::DecodeMode::pass_q
                     : tp > 1 ? parallel::DecodeMode::tp
                     : sp > 1 ? parallel::DecodeMode::sp
                              : parallel::DecodeMode::single;
  resources.max_batch_tokens = 256;
  resources.max_sequences = 5;
  return resources;
}

RankNeeds needs(int rank, const resources::Resources& resources,
                const model::ModelConfig& config = small_model()) {
  return needs_of_rank(rank, {}, config, resources, DType::fp32, {});
}

TEST(RankNeeds, OfOneRankAreAllWeightsAndNoMessage) {
  const RankNeeds alone = needs(0, resources_of(1, 1, 1));
  const int64_t weights = small_model().parameters() * 4;
  EXPECT_GE(alone.weight_bytes, weights);
  EXPECT_LT(alone.weight_bytes, 1.1 * static_cast<double>(weights));  // padding of each tensor
  EXPECT_EQ(alone.prefill_sent_bytes, 0);
  EXPECT_EQ(alone.decode_sent_bytes, 0);
  // At least the rows of hidden states and of the FFN.
  EXPECT_GT(alone.work_bytes, 256 * (64 + 2 * 128) * 4);
}

TEST(RankNeeds, OfARingAreThePapersBytes) {
  constexpr int64_t ranks = 4, layers = 3, kv_heads = 4, heads = 8, dim = 8;
  const RankNeeds of_ring = needs(1, resources_of(ranks, 1, 1));
  EXPECT_EQ(of_ring.weight_bytes, needs(0, resources_of(1, 1, 1)).weight_bytes);
  EXPECT_EQ(of_ring.prefill_sent_bytes,
            layers * (ranks - 1) * (256 / ranks) * 2 * kv_heads * dim * 4);
  // Pass-Q of 5 rows over 4 ranks: rank 1 has those of sequences 1 and 5. It passes on all but the
  // next one's, and sends results of all but its own home.
  constexpr int64_t query = heads * dim * 4, home = query + heads * 4;
  EXPECT_EQ(of_ring.decode_sent_bytes, layers * ((5 - 1) * query + (5 - 2) * home));
}

/// Chunks of 64 tokens on 2 ranks and two layers with a window of 9: rank 0 has [0,64) and [192,256),
/// and sends the last 8 keys of the first. A step of 5 sequences: rank 1 has the prompts' last rows.
TEST(RankNeeds, SayWhatWindowsSpare) {
  constexpr int64_t token = 2 * 4 * 8 * 4;  // bytes of K and V in a layer
  model::ModelConfig windowed = small_model();
  windowed.pattern[0].window = windowed.pattern[2].window = 9;
  const resources::Resources ring = resources_of(2, 1, 1);
  const RankNeeds found = needs(0, ring, windowed);
  EXPECT_EQ(found.prefill_windows, (attention::WindowTotals{2 * 8 * token, 2 * 128 * token}));
  EXPECT_EQ(found.prefill_sent_bytes, (2 * 8 + 128) * token);
  EXPECT_GT(found.decode_windows.whole_ring_bytes, 0);
  EXPECT_LE(found.decode_windows.sent_bytes, found.decode_windows.whole_ring_bytes);
  EXPECT_EQ(needs(0, ring).prefill_windows, attention::WindowTotals{});
  EXPECT_EQ(needs(0, resources_of(1, 2, 1), windowed).prefill_windows, attention::WindowTotals{});
}

TEST(RankNeeds, FallWithTensorParallelism) {
  const RankNeeds alone = needs(0, resources_of(1, 1, 1)), of_two = needs(0, resources_of(1, 1, 2));
  EXPECT_LT(static_cast<double>(of_two.weight_bytes),
            0.6 * static_cast<double>(alone.weight_bytes));
  EXPECT_GT(of_two.prefill_sent_bytes, 0);
  EXPECT_GT(of_two.decode_sent_bytes, 0);
}

TEST(RankNeeds, OfWorkGrowWithTheBatch) {
  resources::Resources resources = resources_of(1, 1, 1);
  const int64_t before = needs(0, resources).work_bytes;
  resources.max_batch_tokens *= 4;
  EXPECT_GT(needs(0, resources).work_bytes, 2 * before);
}

/// max_batch_tokens: auto is chosen by this rule, before modes are known.
TEST(RankNeeds, OfWorkAreNearTheRuleForABatch) {
  resources::Resources resources = resources_of(1, 1, 1);
  resources.max_batch_tokens = 4096;
  const double rule =
      4096.0 * static_cast<double>(model::Model::activation_bytes_per_row(small_model()));
  const auto work = static_cast<double>(needs(0, resources).work_bytes);
  EXPECT_GT(work, 0.7 * rule);
  EXPECT_LT(work, 1.3 * rule);
}

/// The threshold is measured when a run starts.
TEST(RankNeeds, OfShiftWithoutAThresholdAreTheBaseConfigurations) {
  resources::Resources resources = resources_of(1, 2, 1);
  const int64_t base = needs(0, resources).decode_sent_bytes;
  resources.decode = parallel::DecodeMode::shift;
  EXPECT_EQ(needs(0, resources).decode_sent_bytes, base);
  resources.shift_threshold = resources.max_sequences;
  EXPECT_NE(needs(0, resources).decode_sent_bytes, base);
}

/// What the rule of the shift configuration counts: (N − 1)/N² of the heads, for Ulysses; two
/// all-reduces of every row in the shift configuration.
TEST(SentPerToken, IsThePapersForABlock) {
  const model::ModelConfig config = small_model();
  for (const DType wire : {DType::fp32, DType::bf16}) {
    const auto [base, shift] = sent_per_token(config, 4, 1, 1, wire);
    const double heads = config.num_heads + 2 * config.num_kv_heads + config.num_heads;
    const auto bytes = static_cast<double>(size_of(wire));
    EXPECT_DOUBLE_EQ(base, 3.0 / 16 * heads * static_cast<double>(config.head_dim) * bytes);
    EXPECT_DOUBLE_EQ(shift, 2 * 2 * 3.0 / 4 * static_cast<double>(config.hidden) * bytes);
  }
  const auto alone = sent_per_token(config, 1, 1);
  EXPECT_EQ(alone.base, 0);
  EXPECT_EQ(alone.shift, 0);
}

}  // namespace
}  // namespace pecia::execute
