// SPDX-License-Identifier: Apache-2.0
/// What the benchmarks divide by, and what their --check lets pass.

#include <gtest/gtest.h>

#include <cmath>

#include "apps/bench/support/agreement.hpp"
#include "apps/bench/support/held_out.hpp"
#include "apps/bench/support/timing.hpp"
#include "apps/bench/support/work.hpp"

namespace pecia::bench {
namespace {

/// Two layers, one of them seeing 4 tokens at most; 2 heads of 3, 1 KV head.
model::ModelConfig small_model() {
  model::ModelConfig config;
  config.vocab = 11, config.hidden = 5, config.ffn = 7, config.layers = 2;
  config.num_heads = 2, config.num_kv_heads = 1, config.head_dim = 3;
  config.pattern = {{}, {.window = 4}};
  return config;
}

TEST(Work, LayersAndHeadMakeWhatTheConfigurationCounts) {
  const model::ModelConfig config = small_model();
  EXPECT_EQ(head_flops_per_row(config), 2 * 11 * 5);
  // q and o 6×5, k and v 3×5, gate, up and down 7×5; 2 FLOPs each, two layers.
  EXPECT_EQ(layer_flops_per_token(config), 2 * 2 * (2 * 30 + 2 * 15 + 3 * 35));
}

TEST(Work, AttentionCountsThePairsThatAreSeen) {
  const model::ModelConfig config = small_model();
  for (const int64_t first : {0, 2, 3, 4, 5, 20})
    for (const int64_t count : {0, 1, 2, 5, 9}) {
      double pairs = 0;
      for (int64_t query = first; query < first + count; ++query)
        for (int64_t key = 0; key <= query; ++key) pairs += key > query - 4 ? 2 : 1;
      EXPECT_EQ(attention_flops(config, first, count), 4 * 2 * 3 * pairs)
          << count << " tokens from " << first;
    }
}

TEST(Work, APrefillIsTheSumOfItsParts) {
  const model::ModelConfig config = small_model();
  const double five_end_early = 5 * config.flops_after_mixers();
  EXPECT_GT(five_end_early, 0);
  for (const int64_t cached : {0, 9})
    EXPECT_EQ(prefill_flops(config, 6, cached), 6 * layer_flops_per_token(config) - five_end_early +
                                                    attention_flops(config, cached, 6) +
                                                    head_flops_per_row(config));
  EXPECT_EQ(decode_flops(config, 3, 6),
            3 * (layer_flops_per_token(config) + attention_flops(config, 6, 1) +
                 head_flops_per_row(config)));
}

TEST(Work, LayersWithAStateDoNotAttend) {
  model::ModelConfig config = small_model();
  const double attended = attention_flops(config, 0, 6), multiplied = layer_flops_per_token(config);
  config.recurrent = {.key_heads = 1, .key_dim = 3, .heads = 2, .value_dim = 3, .conv_rows = 4};
  config.pattern[1].mixer = model::MixerKind::recurrence;
  EXPECT_EQ(attention_flops(config, 0, 6), 4 * 2 * 3 * (6 * 7 / 2)) << "the layer without a window";
  EXPECT_LT(attention_flops(config, 0, 6), attended);
  // In place of q, k, v and o: q and k 3×5, v, z and o 6×5, a and b 2×5.
  const double matrices = 2 * (2 * 15 + 3 * 30 + 2 * 10 - (2 * 30 + 2 * 15));
  EXPECT_EQ(layer_flops_per_token(config),
            multiplied + matrices + config.recurrence_flops_per_token());
  EXPECT_GT(config.recurrence_flops_per_token(), 0);
}

TEST(SequencesThatFit, FillTheRoomAndNoMore) {
  const std::vector<int64_t> bytes = {3, 4, 2};
  EXPECT_EQ(sequences_that_fit(bytes, 9), 3);
  EXPECT_EQ(sequences_that_fit(bytes, 8), 2);
  EXPECT_EQ(sequences_that_fit(bytes, 7), 2);
  EXPECT_EQ(sequences_that_fit(bytes, 2), 0) << "the last is not taken in place of the first";
  EXPECT_EQ(sequences_that_fit(bytes, -5), 0) << "weights that do not fit themselves";
}

TEST(HeldOut, IsOffByWhatTheRatesDoNotExplain) {
  const auto timed = [](double rows, double factor) {
    const schedule::PassWork work{1, rows, rows * rows / 2};
    return TimedWork{work, factor * (2e-3 + 3e-5 * work.rows + 2e-9 * work.pairs)};
  };
  const schedule::RateFit expected({1e-3, 1e-5, 1e-9});
  std::vector<TimedWork> measured;
  for (const double rows : {100.0, 400.0, 1600.0, 6400.0, 800.0, 3200.0})
    measured.push_back(timed(rows, 1));
  for (const double error : held_out_errors(measured, expected))
    EXPECT_LT(error, 0.05);  // the prior draws ends
  measured.push_back(timed(2400, 1.5));
  EXPECT_NEAR(held_out_errors(measured, expected).back(), 1.0 / 3, 0.03);
  EXPECT_THROW(held_out_errors({measured.front()}, expected), InvalidArgument);
}

TEST(Work, ADecodeStepReadsMatricesOnceOnEachRankThatHasARow) {
  const std::filesystem::path folder = PECIA_GOLDENS "/llama-gqa-fp32";
  const model::ModelConfig config = model::read_config(folder);
  const model::Weights weights(config, io::Checkpoint(folder), {});
  // 2 layers of q and o 64×32, k and v 32×32, gate, up and down 48×32, and a head 96×32, in fp32.
  const double matrices = 4 * (2 * (2 * 64 * 32 + 2 * 32 * 32 + 3 * 48 * 32) + 96 * 32);
  // K and V of 4 heads of 8 in 2 layers, in bf16; the new token's own too.
  const double kv = (50 + 1) * 2 * 4 * 8 * 2 * 2;
  EXPECT_EQ(decode_bytes(config, weights, 3, 50, DType::bf16, 1), matrices + 3 * kv);
  EXPECT_EQ(decode_bytes(config, weights, 3, 50, DType::bf16, 2), 2 * matrices + 3 * kv);
  EXPECT_EQ(decode_bytes(config, weights, 1, 50, DType::bf16, 4), matrices + kv);
  const double head = 4 * 96 * 32;
  const double rows = 2 * (64 + 2 * 32 + 32 + 2 * 48 + 32);
  EXPECT_EQ(decode_bytes(config, weights, 1, 50, DType::bf16, 1, model::Quantize::fp8),
            (matrices - head) / 4 + 4 * rows + head + kv);
  EXPECT_EQ(decode_bytes(config, weights, 1, 50, DType::bf16, 1, model::Quantize::int8),
            matrices / 4 + 4 * (rows + 96) + kv);
  // In int4 q, o, gate and up, where a group of 128 numbers, which none of these rows fills, is 64
  // bytes and two scales.
  const double int4_rows = 2 * (64 + 32 + 2 * 48), int8_rows = 2 * (2 * 32 + 32);
  EXPECT_EQ(decode_bytes(config, weights, 1, 50, DType::bf16, 1, model::Quantize::int4),
            int4_rows * 72 + 2 * (2 * 32 * 32 + 32 * 48) + 4 * int8_rows + head / 4 + 4 * 96 + kv);

  // One layer keeps a state of 2 heads in place of keys and values.
  model::ModelConfig hybrid = config;
  hybrid.recurrent = {.key_heads = 1, .key_dim = 3, .heads = 2, .value_dim = 3, .conv_rows = 4};
  hybrid.pattern[1].mixer = model::MixerKind::recurrence;
  const double state = 4 * (2 * 3 * 3 + 3 * (2 * 3 + 6));
  EXPECT_EQ(decode_bytes(hybrid, weights, 3, 50, DType::bf16, 1), matrices + 3 * (kv / 2 + state));
}

TEST(Spread, IsOfTheMiddleAndTheEnds) {
  const Spread odd = spread({3, 1, 9});
  EXPECT_EQ(odd.median, 3);
  EXPECT_EQ(odd.min, 1);
  EXPECT_EQ(odd.max, 9);
  EXPECT_EQ(spread({4, 2}).median, 3);
  EXPECT_THROW(spread({}), Error);
}

TEST(Difference, LetsPassWhatIsWithinTheTolerance) {
  EXPECT_EQ(difference(std::vector{1.f, 2.f}, std::vector{1.f, 2.5f}, 0.5), "");
}

TEST(Difference, NamesTheWorstValue) {
  const std::string found =
      difference(std::vector{1.f, 2.f, 3.f}, std::vector{1.2f, 2.75f, 3.f}, 0.1);
  EXPECT_NE(found.find("value 1 is 2, expected 2.75"), std::string::npos) << found;
}

TEST(Difference, IsNeverNothingForNaNOrMissingValues) {
  EXPECT_NE(difference(std::vector{NAN}, std::vector{1.f}, 1e9), "");
  EXPECT_NE(difference(std::vector{1.f, 0.f}, std::vector{NAN, 0.f}, 1e9), "");
  EXPECT_NE(difference(std::vector{INFINITY}, std::vector{1.f}, 1e9), "");
  EXPECT_NE(difference(std::vector{NAN, 5.f}, std::vector{1.f, 0.f}, 1), "");
  EXPECT_NE(difference(std::vector{1.f}, std::vector{1.f, 2.f}, 1e9), "");
  EXPECT_NE(difference({}, {}, 1e9), "");
}

TEST(CheckTogether, ThrowsTheProblemAndOnlyAProblem) {
  const auto alone = comm::make_null_communicator();
  EXPECT_NO_THROW(check_together(*alone, ""));
  EXPECT_THROW(check_together(*alone, "wrong"), CheckFailed);
}

}  // namespace
}  // namespace pecia::bench
