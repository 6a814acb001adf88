// SPDX-License-Identifier: Apache-2.0
/// The steps of attention by strips. plain_lanes() is held against what the steps promise, and
/// vector_lanes() against plain_lanes(), bit by bit, where the CPU has the instructions.

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "kernels/cpu/attention/row_weights.hpp"
#include "kernels/cpu/attention/strip_lanes.hpp"
#include "kernels/cpu/attention/strip_products.hpp"
#include "kernels/cpu/products/bf16_native.hpp"
#include "kernels/cpu/products/twin_tiles.hpp"
#include "lib/base/core/dtype.hpp"
#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

using namespace kernels::cpu;
using kernels::Window;

constexpr int64_t dims = 64;

/// A chunk's scores with their lanes' state, and where the steps write.
template <int kHalves>
struct Chunk {
  static constexpr int64_t lanes = kHalves * half_lanes;
  alignas(64) float scores[chunk_keys * lanes];
  float scales[chunk_keys];
  Visible visible;
  float maxima[strip_lanes], sums[strip_lanes], highest[strip_lanes];
  alignas(64) float out[dims * lanes];
  alignas(64) uint16_t weights[chunk_keys * lanes];

  /// Normal scores of this spread, in units of powers of two.
  explicit Chunk(float spread, uint64_t seed = 1) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (float& score : scores) score = normal(random) * spread;
    for (float& scale : scales) scale = power_units * (1 + std::abs(normal(random)) / 8);
    for (uint32_t& key : visible) key = static_cast<uint32_t>(random());
    for (float& maximum : maxima) maximum = power_units * std::ceil(normal(random) * spread);
    for (float& sum : sums) sum = std::abs(normal(random));
    for (float& element : out) element = normal(random);
    std::fill_n(highest, strip_lanes, no_maximum);
    std::fill_n(weights, chunk_keys * lanes, uint16_t{0x7fff});
  }

  ChunkScores of(const Visible* seen) { return {scores, scales, seen}; }
  StripRows rows() { return {maxima, sums, out, dims}; }
  bool sees(int64_t key, int64_t lane) const { return (visible[key] >> lane & 1) != 0; }
  float weight(int64_t key, int64_t lane) const {
    return bf16_to_float(weights[(key / 2 * lanes + lane) * 2 + key % 2]);
  }
};

template <typename T, size_t kCount>
testing::AssertionResult same_bits(const T (&found)[kCount], const T (&wanted)[kCount]) {
  for (size_t i = 0; i < kCount; ++i)
    if (std::memcmp(&found[i], &wanted[i], sizeof(T)) != 0)
      return testing::AssertionFailure()
             << "element " << i << " is " << found[i] << ", not " << wanted[i];
  return testing::AssertionSuccess();
}

/// Scores at the edges of the range, and beyond: of every kind in every lane.
template <int kHalves>
void plant_extremes(Chunk<kHalves>& chunk) {
  const float extremes[] = {0.0f,      -0.0f,  1e-40f,  31249.0f, -31249.0f, 31251.0f, -31251.0f,
                            90000,     -90000, 1e7f,    -1e7f,    1e20f,     -1e20f,   infinity,
                            -infinity, NAN,    -126.5f, -133.0f,  8.1f,      7.9f};
  for (int64_t lane = 0; lane < chunk.lanes; ++lane)
    chunk.scores[lane * 7 % chunk_keys * chunk.lanes + lane] = extremes[lane % std::size(extremes)];
}

template <int kHalves>
void expect_weights_and_sums(float spread) {
  Chunk<kHalves> chunk(spread);
  const Chunk<kHalves> before = chunk;
  uint32_t exceeding = plain_lanes().of<kHalves>().weigh(chunk.of(&chunk.visible), chunk.maxima,
                                                         chunk.weights, chunk.sums);
  for (int64_t lane = 0; lane < chunk.lanes; ++lane) {
    double sum = before.sums[lane];
    bool exceeds = false;
    for (int64_t key = 0; key < chunk_keys; ++key) {
      const float found = chunk.weight(key, lane);
      if (!chunk.sees(key, lane)) {
        ASSERT_EQ(found, 0) << key << ", " << lane;
        continue;
      }
      const double power =
          (static_cast<double>(chunk.scores[key * chunk.lanes + lane]) * chunk.scales[key] -
           chunk.maxima[lane]) /
          power_units;
      // Half a unit of rounding the exponent, 0.52 of rounding the correction, and a quarter between
      // the two fractions that share an entry of the table, each 2^-7 of the weight at most.
      if (power > -126 && power < 127) {
        ASSERT_NEAR(found / std::exp2(power), 1, 1.27 / 128) << key << ", " << lane;
      } else if (power < -127) {
        ASSERT_LE(found, 0x1p-126f) << key << ", " << lane;
      }
      sum += found;
      exceeds = exceeds || std::round(power * 128) > 8 * 128;
    }
    if (sum < std::numeric_limits<float>::max()) {
      EXPECT_NEAR(chunk.sums[lane], sum, sum * 33 * 0x1p-24);
    }
    EXPECT_EQ((exceeding >> lane & 1) != 0, exceeds) << lane;
  }
}

TEST(PlainLanes, WeighByPowersOfTwo) {
  for (const float spread : {0.01f, 1.0f, 10.0f, 60.0f}) {
    expect_weights_and_sums<1>(spread);
    expect_weights_and_sums<2>(spread);
  }
}

/// Errors of single weights have both signs: a long sum of weights is much closer.
TEST(PlainLanes, WeightsHaveNoBias) {
  double found = 0, wanted = 0, squares = 0;
  constexpr int chunks = 400;
  for (int i = 0; i < chunks; ++i) {
    Chunk<2> chunk(4, i);
    std::fill_n(chunk.maxima, strip_lanes, 12 * power_units);
    plain_lanes().of<2>().weigh(chunk.of(nullptr), chunk.maxima, chunk.weights, chunk.sums);
    for (int64_t key = 0; key < chunk_keys; ++key)
      for (int64_t lane = 0; lane < strip_lanes; ++lane) {
        const double power =
            static_cast<double>(chunk.scores[key * strip_lanes + lane]) * chunk.scales[key] / 128;
        const double relative = chunk.weight(key, lane) / std::exp2(power - 12) - 1;
        found += chunk.weight(key, lane), wanted += std::exp2(power - 12);
        squares += relative * relative;
      }
  }
  EXPECT_NEAR(found / wanted, 1, 2.5e-4);
  // Rounding the exponent and rounding the correction, each 2^-7 / √12 of a mantissa of 1.44.
  EXPECT_LT(std::sqrt(squares / (chunks * chunk_keys * strip_lanes)), 2.5e-3);
}

TEST(PlainLanes, RaiseExactlyAndOnlyTheChosen) {
  Chunk<2> chunk(3);
  const Chunk<2> before = chunk;
  const uint32_t some = 0x0f0f5555;
  plain_lanes().of<2>().find_highest(chunk.of(&chunk.visible), chunk.highest);
  plain_lanes().of<2>().raise(chunk.highest, some, chunk.rows());
  int raised = 0;
  for (int64_t lane = 0; lane < strip_lanes; ++lane) {
    float highest = no_maximum;
    for (int64_t key = 0; key < chunk_keys; ++key)
      if (chunk.sees(key, lane))
        highest = std::max(highest, chunk.scores[key * strip_lanes + lane] * chunk.scales[key]);
    ASSERT_EQ(chunk.highest[lane], highest) << lane;
    const bool rises = (some >> lane & 1) != 0 && highest > before.maxima[lane];
    raised += rises ? 1 : 0;
    const float maximum =
        rises ? std::ceil(highest / power_units) * power_units : before.maxima[lane];
    ASSERT_EQ(chunk.maxima[lane], maximum);
    const float factor = std::exp2((before.maxima[lane] - maximum) / power_units);
    ASSERT_EQ(chunk.sums[lane], before.sums[lane] * factor);
    for (int64_t d = 0; d < dims; ++d)
      ASSERT_EQ(chunk.out[d * strip_lanes + lane], before.out[d * strip_lanes + lane] * factor);
  }
  EXPECT_GT(raised, 4);
}

/// The bits of a result do not depend on when a maximum rose: weights, sums and out only differ by
/// a power of two.
TEST(PlainLanes, AMaximumDoesNotChangeBits) {
  Chunk<1> low(2), high(2);
  std::fill_n(low.maxima, strip_lanes, 0.0f);
  std::fill_n(high.maxima, strip_lanes, 5 * power_units);
  std::fill_n(low.sums, strip_lanes, 0.0f);
  std::fill_n(high.sums, strip_lanes, 0.0f);
  plain_lanes().of<1>().weigh(low.of(nullptr), low.maxima, low.weights, low.sums);
  plain_lanes().of<1>().weigh(high.of(nullptr), high.maxima, high.weights, high.sums);
  for (int64_t lane = 0; lane < half_lanes; ++lane) {
    EXPECT_EQ(low.sums[lane], high.sums[lane] * 32);
    for (int64_t key = 0; key < chunk_keys; ++key)
      EXPECT_EQ(low.weight(key, lane), high.weight(key, lane) * 32);
  }
}

TEST(PlainLanes, ScoresOutOfRangeAreBoundedAndNanStays) {
  Chunk<2> chunk(1);
  plant_extremes(chunk);
  plain_lanes().of<2>().find_highest(chunk.of(nullptr), chunk.highest);
  for (int64_t i = 0; i < chunk_keys * strip_lanes; ++i) {
    const float units = chunk.scores[i] * chunk.scales[i / strip_lanes];
    ASSERT_TRUE(std::isnan(units) || std::abs(units) <= most_units * (1 + 0x1p-22f)) << units;
  }
  EXPECT_TRUE(std::isnan(chunk.scores[15 * 7 % chunk_keys * strip_lanes + 15]));
  std::fill_n(chunk.maxima, strip_lanes, 0.0f);
  const uint32_t exceeding =
      plain_lanes().of<2>().weigh(chunk.of(nullptr), chunk.maxima, chunk.weights, chunk.sums);
  EXPECT_TRUE(std::isnan(chunk.sums[15]));
  EXPECT_NE(exceeding >> 15 & 1, 0);
}

TEST(PlainLanes, SeeByPositionAndWindow) {
  int64_t queries[strip_lanes], keys[chunk_keys];
  for (int64_t i = 0; i < strip_lanes; ++i) queries[i] = 1000 + i * 5 % 32;
  for (int64_t i = 0; i < chunk_keys; ++i) keys[i] = 1000 + i * 11 % 32;
  for (const Window window : {Window(), Window(1), Window(9), Window::chunks_of(9)}) {
    Visible visible;
    int64_t reaches[strip_lanes];
    for (int64_t i = 0; i < strip_lanes; ++i) reaches[i] = window.reach(queries[i]);
    plain_lanes().of<2>().see({queries, reaches, keys, 29}, visible);
    for (int64_t key = 0; key < chunk_keys; ++key)
      for (int64_t lane = 0; lane < strip_lanes; ++lane) {
        const bool wanted = key < 29 && window.sees(queries[lane], keys[key]);
        ASSERT_EQ((visible[key] >> lane & 1) != 0, wanted) << key << ", " << lane;
      }
  }
}

template <int kHalves>
void pack_and_unpack(const Lanes& of) {
  const LaneSteps& steps = of.of<kHalves>();
  constexpr int64_t lanes = kHalves * half_lanes;
  std::vector<uint16_t> rows(lanes * dims), packed(lanes * dims);
  std::iota(rows.begin(), rows.end(), uint16_t{0});
  steps.pack({rows.data(), dims, packed.data()});
  for (int64_t lane = 0; lane < lanes; ++lane)
    for (int64_t d = 0; d < dims; ++d)
      ASSERT_EQ(packed[(d / 2 * lanes + lane) * 2 + d % 2], lane * dims + d);

  for (const auto& [keys, width] :
       {std::pair<int64_t, int64_t>{32, 64}, {32, 40}, {13, 64}, {17, 33}}) {
    std::vector<uint16_t> values(keys * width), columns(dims * chunk_keys, 7);
    std::iota(values.begin(), values.end(), uint16_t{1});
    of.pack_values({values.data(), keys, width, width, dims, columns.data(), 0});
    for (int64_t d = 0; d < dims; ++d)
      for (int64_t key = 0; key < chunk_keys; ++key)
        ASSERT_EQ(columns[d * chunk_keys + key], key < keys && d < width ? key * width + d + 1 : 0)
            << keys << " × " << width << ": " << d << ", " << key;
  }

  constexpr int64_t width = 41, count = lanes - 3;
  std::vector<float> out(dims * lanes, -1), wanted(count * width), found(count * width, -2);
  std::vector<float> factors(lanes);
  RowsOfLanes places{{}, count, width, factors.data()};
  for (int64_t i = 0; i < count * width; ++i) wanted[i] = static_cast<float>(i);
  for (int64_t lane = 0; lane < lanes; ++lane) factors[lane] = std::exp2(static_cast<float>(lane));
  const StripRows strip{nullptr, nullptr, out.data(), dims};
  for (int64_t lane = 0; lane < count; ++lane) places.rows[lane] = wanted.data() + lane * width;
  steps.read(strip, places);
  for (int64_t lane = 0; lane < count; ++lane) places.rows[lane] = found.data() + lane * width;
  steps.write(strip, places);
  EXPECT_EQ(found, wanted);
}

TEST(PlainLanes, PackAndUnpack) {
  pack_and_unpack<1>(plain_lanes());
  pack_and_unpack<2>(plain_lanes());
}

template <int kHalves>
void expect_equal_lanes() {
  for (const float spread : {0.3f, 5.0f, 100.0f})
    for (const bool extreme : {false, true})
      for (const bool masked : {false, true}) {
        Chunk<kHalves> found(spread), wanted(spread);
        if (extreme) plant_extremes(found), plant_extremes(wanted);
        const auto run = [&](const Lanes& of, Chunk<kHalves>& chunk) {
          const ChunkScores scores = chunk.of(masked ? &chunk.visible : nullptr);
          const LaneSteps& steps = of.of<kHalves>();
          const uint32_t first = steps.weigh(scores, chunk.maxima, chunk.weights, chunk.sums);
          steps.find_highest(scores, chunk.highest);
          steps.raise(chunk.highest, first | 0xff00ff00, chunk.rows());
          return std::pair(first, steps.weigh(scores, chunk.maxima, chunk.weights, chunk.sums));
        };
        SCOPED_TRACE(testing::Message() << spread << ", " << extreme << ", " << masked);
        EXPECT_EQ(run(vector_lanes(), found), run(plain_lanes(), wanted));
        EXPECT_TRUE(same_bits(found.weights, wanted.weights));
        EXPECT_TRUE(same_bits(found.maxima, wanted.maxima));
        EXPECT_TRUE(same_bits(found.highest, wanted.highest));
        EXPECT_TRUE(same_bits(found.scores, wanted.scores));
        for (int64_t lane = 0; lane < found.lanes; ++lane) {
          if (std::isnan(wanted.sums[lane])) {
            EXPECT_TRUE(std::isnan(found.sums[lane])) << lane;
            continue;
          }
          ASSERT_EQ(found.sums[lane], wanted.sums[lane]) << lane;
          for (int64_t d = 0; d < dims; ++d)
            ASSERT_EQ(found.out[d * found.lanes + lane], wanted.out[d * found.lanes + lane]);
        }
      }
}

TEST(VectorLanes, HaveTheBitsOfThePlainOnes) {
  if (!has_native_bf16()) GTEST_SKIP() << "needs products of bf16";
  expect_equal_lanes<1>();
  expect_equal_lanes<2>();
}

TEST(VectorLanes, SeeAndPackAsThePlainOnes) {
  if (!has_native_bf16()) GTEST_SKIP() << "needs products of bf16";
  pack_and_unpack<1>(vector_lanes());
  pack_and_unpack<2>(vector_lanes());
  std::mt19937_64 random(3);
  for (int i = 0; i < 50; ++i) {
    int64_t queries[strip_lanes], reaches[strip_lanes], keys[chunk_keys];
    for (int64_t& reach : reaches) reach = static_cast<int64_t>(1 + random() % 60);
    for (int64_t& query : queries) query = static_cast<int64_t>(random() % 100);
    for (int64_t& key : keys) key = static_cast<int64_t>(random() % 100);
    Visible found, wanted;
    const Positions positions{queries, reaches, keys, i % 33};
    vector_lanes().of<2>().see(positions, found);
    plain_lanes().of<2>().see(positions, wanted);
    EXPECT_EQ(found, wanted);
    vector_lanes().of<1>().see(positions, found);
    plain_lanes().of<1>().see(positions, wanted);
    EXPECT_EQ(found, wanted);
  }
}

/// Four chunks of one lane, as a strip weighs them and as a row does.
void expect_row_equal_to_a_lane(float spread, bool masked, bool fresh) {
  constexpr int64_t chunks = 4, keys = chunks * chunk_keys, lane = 5;
  std::vector<Chunk<1>> block;
  for (int64_t c = 0; c < chunks; ++c) block.emplace_back(spread, 10 + c);
  Chunk<1>& state = block[0];
  if (fresh) state.maxima[lane] = no_maximum, state.sums[lane] = 0;
  std::vector<float> scores(keys), scales(keys), out(dims);
  std::vector<uint16_t> weights(keys, 7);
  for (int64_t key = 0; key < keys; ++key) {
    Chunk<1>& chunk = block[key / chunk_keys];
    if (key < 40 && fresh) chunk.visible[key % chunk_keys] = 0;  // first seen in its second chunk
    const bool seen = !masked || chunk.sees(key % chunk_keys, lane);
    scores[key] = seen ? chunk.scores[key % chunk_keys * half_lanes + lane] : -infinity;
    scales[key] = chunk.scales[key % chunk_keys];
  }
  for (int64_t d = 0; d < dims; ++d) out[d] = state.out[d * half_lanes + lane];
  float maximum = state.maxima[lane], sum = state.sums[lane];
  weigh_row({scores.data(), scales.data(), keys}, {&maximum, &sum, out.data(), dims},
            weights.data());
  add_weights({weights.data(), keys, 1, keys}, &sum);

  const auto of = [&](Chunk<1>& chunk) { return chunk.of(masked ? &chunk.visible : nullptr); };
  const uint32_t one = 1u << lane;
  for (Chunk<1>& chunk : block) {
    if (state.maxima[lane] != no_maximum) break;
    std::fill_n(state.highest, strip_lanes, no_maximum);
    plain_lanes().of<1>().find_highest(of(chunk), state.highest);
    plain_lanes().of<1>().raise(state.highest, one, state.rows());
  }
  const auto weigh = [&] {
    uint32_t exceeding = 0;
    float sums[strip_lanes];
    std::copy_n(state.sums, strip_lanes, sums);
    for (Chunk<1>& chunk : block)
      exceeding |= plain_lanes().of<1>().weigh(of(chunk), state.maxima, chunk.weights, sums);
    return std::pair(exceeding & one, sums[lane]);
  };
  std::pair<uint32_t, float> found = weigh();
  if (found.first != 0) {
    std::fill_n(state.highest, strip_lanes, no_maximum);
    for (Chunk<1>& chunk : block) plain_lanes().of<1>().find_highest(of(chunk), state.highest);
    plain_lanes().of<1>().raise(state.highest, one, state.rows());
    found = weigh();
  }
  EXPECT_EQ(maximum, state.maxima[lane]);
  EXPECT_EQ(sum, found.second);
  for (int64_t d = 0; d < dims; ++d) ASSERT_EQ(out[d], state.out[d * half_lanes + lane]) << d;
  for (int64_t key = 0; key < keys; ++key)
    ASSERT_EQ(bf16_to_float(weights[key]), block[key / chunk_keys].weight(key % chunk_keys, lane))
        << key;
}

TEST(RowWeights, HaveTheBitsOfALane) {
  if (!has_native_bf16()) GTEST_SKIP() << "needs products of bf16";
  for (const float spread : {0.1f, 3.0f, 60.0f})
    for (const bool masked : {false, true})
      for (const bool fresh : {false, true}) {
        SCOPED_TRACE(testing::Message() << spread << ", " << masked << ", " << fresh);
        expect_row_equal_to_a_lane(spread, masked, fresh);
      }
}

TEST(RowWeights, FactorsMultiplyWeightsAndNotSums) {
  if (!has_native_bf16()) GTEST_SKIP() << "needs products of bf16";
  std::vector<float> scores(32, 0), scales(32, 0), factors(32);
  scores[4] = -infinity;
  for (int64_t key = 0; key < 32; ++key) factors[key] = static_cast<float>(key);
  std::vector<uint16_t> weights(32, 1);
  float maximum = 0, sum = 1, out = 7;
  weigh_row({scores.data(), scales.data(), 32}, {&maximum, &sum, &out, 1}, weights.data());
  add_weights({weights.data(), 32, 1, 32}, &sum);
  multiply_weights({weights.data(), 32, 1, 32}, factors.data());
  EXPECT_EQ(sum, 32.0f);
  for (int64_t key = 0; key < 32; ++key)
    EXPECT_EQ(bf16_to_float(weights[key]), key == 4 ? 0.0f : factors[key]) << key;
}

TEST(RowWeights, NanStaysAndRowsThatSeeNothingStayEmpty) {
  if (!has_native_bf16()) GTEST_SKIP() << "needs products of bf16";
  std::vector<float> scores(64, -infinity), scales(64, 128);
  std::vector<uint16_t> weights(64, 1);
  float maximum = no_maximum, sum = 0, out = 0;
  const auto weigh = [&] {
    weigh_row({scores.data(), scales.data(), 64}, {&maximum, &sum, &out, 1}, weights.data());
    add_weights({weights.data(), 64, 1, 64}, &sum);
  };
  weigh();
  EXPECT_TRUE((SumOfRow{maximum, sum}.empty()));
  EXPECT_EQ(sum, 0);
  EXPECT_EQ(weights[3], 0);
  scores[16] = NAN;
  weigh();
  EXPECT_FALSE((SumOfRow{maximum, sum}.empty()));
  EXPECT_TRUE(std::isnan(sum));
}

TEST(SumOfRow, IsThatOfItsLogarithm) {
  for (const float lse : {0.0f, -3.7f, 12.5f, 400.0f, -90.0f})
    EXPECT_NEAR(sum_of_lse(lse).lse(), lse, 1e-6 + std::abs(lse) * 0x1p-22) << lse;
  EXPECT_TRUE(sum_of_lse(kernels::empty_lse).empty());
  EXPECT_EQ(sum_of_lse(kernels::empty_lse).lse(), kernels::empty_lse);
}

/// Small integers, whose products are exact in any order.
template <class Products, int kHalves>
void multiply_and_add() {
  constexpr int64_t lanes = kHalves * half_lanes, chunks = 3;
  const auto integers = [](int64_t count, int64_t step) {
    std::vector<uint16_t> numbers(count);
    for (int64_t i = 0; i < count; ++i)
      numbers[i] = float_to_bf16(static_cast<float>(i * step % 11 - 5));
    return numbers;
  };
  constexpr int64_t stride = dims + 8;
  const auto keys = integers(chunk_keys * stride, 3), rows = integers(lanes * dims, 7);
  const auto values = integers(chunks * dims * chunk_keys, 5);
  const auto weights = integers(chunks * chunk_keys * lanes, 2);
  std::vector<uint16_t> queries(lanes * dims);
  plain_lanes().of<kHalves>().pack({rows.data(), dims, queries.data()});
  std::vector<float> scores(chunk_keys * lanes, 99), out(dims * lanes, 4);
  Products::begin();
  Products::template multiply<kHalves>({keys.data(), stride, queries.data(), dims, scores.data()});
  Products::template add<kHalves>({values.data(), weights.data(), chunks, dims, out.data()});
  Products::end();
  for (int64_t lane = 0; lane < lanes; ++lane) {
    for (int64_t key = 0; key < chunk_keys; ++key) {
      float wanted = 0;
      for (int64_t d = 0; d < dims; ++d)
        wanted += bf16_to_float(keys[key * stride + d]) * bf16_to_float(rows[lane * dims + d]);
      ASSERT_EQ(scores[key * lanes + lane], wanted) << key << ", " << lane;
    }
    for (int64_t d = 0; d < dims; ++d) {
      float wanted = 4;
      for (int64_t key = 0; key < chunks * chunk_keys; ++key)
        wanted += bf16_to_float(values[(key / 32 * dims + d) * 32 + key % 32]) *
                  bf16_to_float(weights[(key / 2 * lanes + lane) * 2 + key % 2]);
      ASSERT_EQ(out[d * lanes + lane], wanted) << d << ", " << lane;
    }
  }
}

TEST(StripProducts, ByTwinTiles) {
  multiply_and_add<TileProducts<TwinTiles>, 1>();
  multiply_and_add<TileProducts<TwinTiles>, 2>();
}

TEST(StripProducts, ByVectors) {
  if (!has_native_bf16()) GTEST_SKIP() << "needs products of bf16";
  multiply_and_add<VectorProducts, 1>();
  multiply_and_add<VectorProducts, 2>();
}

}  // namespace
}  // namespace pecia::test
