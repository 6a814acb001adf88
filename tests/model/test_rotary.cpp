// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/api/backend.hpp"
#include "lib/model/layers/rotary.hpp"
#include "tests/support/compare.hpp"

namespace pecia::model {
namespace {

using test::all_close;

// fp32 arithmetic of a few operations on each value.
constexpr double relative = 1e-6;

/// Eight rotated dimensions and theta 10⁴: the plain frequencies are 1, 0.1, 0.01, 0.001.
RopeConfig eight_dimensions(RopeScaling scaling, double factor, int64_t original) {
  RopeConfig config;
  config.theta = 10000.0;
  config.rotary_dim = 8;
  config.scaling = scaling;
  config.factor = factor;
  config.original_max_positions = original;
  return config;
}

testing::AssertionResult frequencies_are(const RopeConfig& config, int64_t length,
                                         std::vector<float> expected) {
  return all_close(Rotary(config).frequencies(length), expected, 0, relative);
}

TEST(RotaryFrequencies, Plain) {
  const RopeConfig config = eight_dimensions(RopeScaling::none, 1, 0);
  EXPECT_TRUE(frequencies_are(config, 1, {1, 0.1f, 0.01f, 0.001f}));
  EXPECT_TRUE(frequencies_are(config, 1'000'000, {1, 0.1f, 0.01f, 0.001f}));
  EXPECT_EQ(Rotary(config).attention_factor(), 1.0f);
}

TEST(RotaryFrequencies, Linear) {
  EXPECT_TRUE(frequencies_are(eight_dimensions(RopeScaling::linear, 4, 512), 1,
                              {0.25f, 0.025f, 0.0025f, 0.00025f}));
}

TEST(RotaryFrequencies, DynamicGrowsTheBaseOnlyBeyondTheModelsLength) {
  const RopeConfig config = eight_dimensions(RopeScaling::dynamic, 2, 512);
  EXPECT_TRUE(frequencies_are(config, 512, {1, 0.1f, 0.01f, 0.001f}));
  // 1024 tokens: theta · (2 · 1024 / 512 − 1)^(8/6) = 10⁴ · 3^(4/3) = 43267.487; its powers −i/4
  EXPECT_TRUE(frequencies_are(config, 1024, {1, 0.069336127f, 0.0048074986f, 0.00033333333f}));
}

TEST(RotaryFrequencies, Llama3HasThreeBands) {
  RopeConfig config = eight_dimensions(RopeScaling::llama3, 8, 1024);
  config.low_freq_factor = 1;
  config.high_freq_factor = 4;
  // Wavelengths 6.28, 62.8, 628 and 6283. Below 1024/4 kept, above 1024/1 divided by 8; between,
  // with s = (1024/628.32 − 1) / 3 = 0.20991554, 0.01 · ((1 − s)/8 + s).
  EXPECT_TRUE(frequencies_are(config, 1, {1, 0.1f, 0.003086761f, 0.000125f}));
}

TEST(RotaryFrequencies, YarnRampsBetweenTheCorrectionDimensions) {
  RopeConfig config = eight_dimensions(RopeScaling::yarn, 4, 1024);
  // 8 ln(1024 / 2π rotations) / (2 ln 10⁴) is 0.707 for 32 rotations and 2.212 for one: from 0 to
  // 3, so that a third and two thirds of the way are divided by 4.
  EXPECT_TRUE(frequencies_are(config, 1, {1, 0.075f, 0.005f, 0.00025f}));
  EXPECT_NEAR(Rotary(config).attention_factor(), 1.1386294, 1e-6);  // 0.1 ln 4 + 1

  config.truncate = false;
  EXPECT_TRUE(frequencies_are(config, 1, {1, 0.085398637f, 0.0035569715f, 0.00025f}));
}

TEST(RotaryFrequencies, YarnWithoutRoomForARampStepsInstead) {
  RopeConfig config = eight_dimensions(RopeScaling::yarn, 4, 4);
  // Both correction dimensions lie below 0 (−1.70 and −0.20): the ramp from 0 to 0 becomes a step.
  EXPECT_TRUE(frequencies_are(config, 1, {1, 0.025f, 0.0025f, 0.00025f}));
}

TEST(RotaryFrequencies, LongropeHasLongFactorsBeyondTheOriginalLength) {
  RopeConfig config = eight_dimensions(RopeScaling::longrope, 4, 1024);
  config.short_factors = {1, 1.25, 2, 4};
  config.long_factors = {1, 2, 4, 8};
  EXPECT_TRUE(frequencies_are(config, 1024, {1, 0.08f, 0.005f, 0.00025f}));
  EXPECT_TRUE(frequencies_are(config, 1025, {1, 0.05f, 0.0025f, 0.000125f}));
  EXPECT_NEAR(Rotary(config).attention_factor(), std::sqrt(1.2), 1e-6);  // ln 4 / ln 1024
  config.factor = 1;
  EXPECT_EQ(Rotary(config).attention_factor(), 1.0f);
  config.attention_factor = 1.5;
  EXPECT_EQ(Rotary(config).attention_factor(), 1.5f);
}

/// Rows of one request must not mix short and long factors, whatever was cached when.
TEST(RotaryLength, IsOneForARequestWithLongrope) {
  EXPECT_EQ(rope_length(RopeScaling::longrope, 3, 10, 50), 50);
  EXPECT_EQ(rope_length(RopeScaling::longrope, 49, 10, 50), 50);
  EXPECT_EQ(rope_length(RopeScaling::dynamic, 3, 10, 50), 10);
  EXPECT_EQ(rope_length(RopeScaling::dynamic, 20, 10, 50), 21);
}

TEST(RotaryAttentionFactor, OfYarn) {
  RopeConfig config = eight_dimensions(RopeScaling::yarn, 40, 1024);
  config.mscale = 0.707;
  EXPECT_NEAR(Rotary(config).attention_factor(), 1.3688879, 1e-6);  // mscale alone is not used
  config.mscale_all_dim = 1.0;
  EXPECT_NEAR(Rotary(config).attention_factor(), 0.92104236, 1e-6);
  config.attention_factor = 0.5;
  EXPECT_EQ(Rotary(config).attention_factor(), 0.5f);
}

struct Tables {
  std::vector<float> cos, sin;
};

Tables tables_of(const RopeConfig& config, const std::vector<int64_t>& positions,
                 const std::vector<int64_t>& lengths) {
  const Rotary rotary(config);
  const RowFrequencies of_rows = rotary.frequencies_of(lengths);
  const auto rows = static_cast<int64_t>(positions.size());
  const int64_t pairs = rotary.rotary_dim() / 2;
  Tables tables{std::vector<float>(rows * pairs, NAN), std::vector<float>(rows * pairs, NAN)};
  device::Stream stream;
  kernels::make_reference_backend()->rope_tables(
      {positions, of_rows.sets, of_rows.frequencies, of_rows.factors,
       TensorView(tables.cos.data(), DType::fp32, {rows, pairs}),
       TensorView(tables.sin.data(), DType::fp32, {rows, pairs})},
      stream);
  return tables;
}

TEST(RotaryRows, HaveEachSetOfFrequenciesOnce) {
  const auto sets_of = [](RopeScaling scaling, const std::vector<int64_t>& lengths) {
    RopeConfig config = eight_dimensions(scaling, 2, 512);
    config.short_factors = {1, 1.25, 2, 4};
    config.long_factors = {1, 2, 4, 8};
    const Rotary rotary(config);
    const RowFrequencies rows = rotary.frequencies_of(lengths);
    for (size_t t = 0; t < lengths.size(); ++t) {
      const auto begin = rows.frequencies.begin() + 4 * rows.sets[t];
      EXPECT_EQ(std::vector<float>(begin, begin + 4), rotary.frequencies(lengths[t])) << t;
    }
    EXPECT_EQ(std::ssize(rows.frequencies),
              4 * (1 + *std::max_element(rows.sets.begin(), rows.sets.end())));
    return rows.sets;
  };
  const std::vector<int64_t> lengths = {9, 9, 600, 512, 700, 600, 1};
  using Sets = std::vector<int32_t>;
  EXPECT_EQ(sets_of(RopeScaling::none, lengths), Sets(7, 0));
  EXPECT_EQ(sets_of(RopeScaling::linear, lengths), Sets(7, 0));
  EXPECT_EQ(sets_of(RopeScaling::dynamic, lengths), (Sets{0, 0, 1, 0, 2, 1, 0}));
  EXPECT_EQ(sets_of(RopeScaling::longrope, lengths), (Sets{0, 0, 1, 0, 1, 1, 0}));
}

TEST(RotaryRows, OfQueriesHaveAFactorForEachTimeThatTheOriginalLengthHasPassed) {
  RopeConfig config = eight_dimensions(RopeScaling::yarn, 4, 1024);
  EXPECT_FALSE(Rotary(config).scales_queries());
  config.attention_factor = 2.0;
  config.temperature_beta = 0.1;
  const Rotary rotary(config);
  ASSERT_TRUE(rotary.scales_queries());
  const std::vector<int64_t> positions = {0, 1023, 1024, 4096, 2047};
  const RowFrequencies rows = rotary.frequencies_of_queries(positions);
  EXPECT_THAT(rows.sets, testing::ElementsAre(0, 0, 1, 2, 1));
  // 2 (1 + 0.1 ln (1 + n)) for n = 0, 1, 4.
  EXPECT_TRUE(all_close(rows.factors, std::vector<float>{2, 2.13862944f, 2.32188758f}, 0, 1e-6));
  const std::vector<float> own = rotary.frequencies(1);
  for (int set = 0; set < 3; ++set)
    EXPECT_EQ(std::vector<float>(rows.frequencies.begin() + 4 * set,
                                 rows.frequencies.begin() + 4 * set + 4),
              own);
}

TEST(RotaryTables, HoldTheAttentionFactor) {
  RopeConfig config = eight_dimensions(RopeScaling::yarn, 4, 1024);
  config.attention_factor = 2.0;
  const Tables tables = tables_of(config, {0, 1}, {2, 2});
  EXPECT_NEAR(tables.cos[0], 2.0, 1e-7);
  EXPECT_NEAR(tables.cos[4], 2 * 0.54030231, 1e-6);
  EXPECT_NEAR(tables.sin[4], 2 * 0.84147098, 1e-6);
}

TEST(RotaryTables, DynamicRowsTurnByTheirOwnLength) {
  const RopeConfig config = eight_dimensions(RopeScaling::dynamic, 2, 512);
  const Tables mixed = tables_of(config, {7, 7, 7}, {100, 1024, 100});
  EXPECT_NEAR(mixed.sin[1], std::sin(0.7), 1e-6);
  EXPECT_NEAR(mixed.sin[5], std::sin(7 * 0.069336127), 1e-6);
  EXPECT_NEAR(mixed.sin[9], std::sin(0.7), 1e-6);
}

TEST(RotaryTables, DoNotDependOnHowRowsAreChunked) {
  const RopeConfig config = eight_dimensions(RopeScaling::dynamic, 2, 16);
  std::vector<int64_t> positions(1000);
  for (size_t row = 0; row < positions.size(); ++row) positions[row] = static_cast<int64_t>(row);
  const std::vector<int64_t> lengths(positions.size(), 1000);
  const Tables whole = tables_of(config, positions, lengths);
  const Tables last = tables_of(config, {999}, {1000});
  EXPECT_THAT(last.cos, testing::ElementsAreArray(whole.cos.end() - 4, whole.cos.end()));
  EXPECT_THAT(last.sin, testing::ElementsAreArray(whole.sin.end() - 4, whole.sin.end()));
}

TEST(GrowthOf, GoesUpEachTimeThatTheFloorHasPassed) {
  const std::vector<int64_t> positions{0, 2, 3, 6, 7, 2};
  const RowFrequencies rows = growth_of({0.5, 4}, positions);
  ASSERT_EQ(rows.sets, (std::vector<int32_t>{0, 0, 1, 1, 2, 0}));
  ASSERT_EQ(rows.factors.size(), 3u);
  EXPECT_EQ(rows.factors[0], 1);
  EXPECT_FLOAT_EQ(rows.factors[1], static_cast<float>(1 + 0.5 * std::log(2)));
  EXPECT_FLOAT_EQ(rows.factors[2], static_cast<float>(1 + 0.5 * std::log(3)));
  EXPECT_EQ(rows.frequencies, (std::vector<float>{0, 0, 0}));
}

}  // namespace
}  // namespace pecia::model
