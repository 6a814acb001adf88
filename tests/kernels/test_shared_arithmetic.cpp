// SPDX-License-Identifier: Apache-2.0
/// The arithmetic that kernels/cuda shares with the host, one function at a time.

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cuda/attention/visibility.hpp"
#include "kernels/cuda/rope_pairs.hpp"
#include "kernels/cuda/sampling/sampling_steps.hpp"
#include "kernels/cuda/shared/fragments.hpp"
#include "kernels/cuda/shared/online_softmax.hpp"

namespace pecia::test {
namespace {

using namespace kernels::cuda;
using kernels::RopePairs;

TEST(Visibility, OfTilesIsCertainWhereItSaysSo) {
  using kernels::Window;
  for (const Window window : {Window(), Window(1), Window(3), Window(6), Window::chunks_of(1),
                              Window::chunks_of(3), Window::chunks_of(5)})
    for (int64_t query = 0; query < 12; ++query)
      for (int64_t key = 0; key < 12; ++key)
        for (const int64_t queries : {1, 4})
          for (const int64_t keys : {1, 5}) {
            int64_t seen = 0;
            for (int64_t q = query; q < query + queries; ++q)
              for (int64_t k = key; k < key + keys; ++k) seen += window.sees(q, k);
            const TileVisibility found =
                tile_visibility({query, query + queries - 1}, {key, key + keys - 1}, window);
            const auto expected = seen == 0                ? TileVisibility::none
                                  : seen == queries * keys ? TileVisibility::all
                                                           : TileVisibility::some;
            EXPECT_EQ(found, expected)
                << query << " + " << queries << ", " << key << " + " << keys
                << (window.chunked() ? ", chunks of " : ", window ") << window.tokens;
          }
}

TEST(Visibility, OfAKeyIsTheWindows) {
  using kernels::Window;
  for (const Window window :
       {Window(), Window(1), Window(4), Window::chunks_of(1), Window::chunks_of(4)})
    for (int64_t query = 0; query < 12; ++query)
      for (int64_t key = 0; key < 14; ++key)
        EXPECT_EQ(sight_of(query, window).has(key), window.sees(query, key))
            << query << ", " << key;
}

TEST(OnlineSoftmax, ExponentsOfNothingAreZeroNotNaN) {
  EXPECT_EQ(std::exp(minus_infinity - exponent_base(minus_infinity)), 0.0f);
  EXPECT_EQ(exponent_base(-3.0f), -3.0f);
}

TEST(OnlineSoftmax, MergesByTheFormula) {
  const MergeWeights weights = merge_weights(0.0f, std::log(3.0f));
  EXPECT_FLOAT_EQ(weights.first, 0.25f);
  EXPECT_FLOAT_EQ(weights.second, 0.75f);
  EXPECT_FLOAT_EQ(weights.lse, std::log(4.0f));
  EXPECT_FLOAT_EQ(merged(weights, 4.0f, 8.0f), 7.0f);
  const MergeWeights nothing = merge_weights(minus_infinity, minus_infinity);
  EXPECT_EQ(nothing.lse, minus_infinity);
  EXPECT_TRUE(std::signbit(merged(nothing, -0.0f, 0.0f)));
  EXPECT_EQ(merged(merge_weights(2.0f, minus_infinity), 5.0f, NAN), 5.0f);
  EXPECT_TRUE(std::isnan(merge_weights(NAN, 1.0f).lse));
  EXPECT_TRUE(std::isnan(merge_weights(1.0f, NAN).lse));
}

TEST(RopePair, IsWhatTheHeaderSays) {
  EXPECT_EQ(rope_pair(RopePairs::halves, 1, 4).second, 5);
  EXPECT_EQ(rope_pair(RopePairs::interleaved, 3, 4).first, 6);
  EXPECT_EQ(rope_pair(RopePairs::interleaved, 3, 4).second, 7);
}

/// Each place of a step of depth, and each of 16 columns, is one register's of each row.
TEST(Fragments, OfFp8HoldEveryPlaceOnceInAnotherOrder) {
  int depth[8][16] = {}, columns[8][16] = {};
  for (int lane = 0; lane < 32; ++lane) {
    for (const int reg : {0, 2})
      for (int i = 0; i < 2; ++i) ++depth[lane / 4][fp8_depth(lane, reg) + i];
    EXPECT_EQ(fp8_depth(lane, 1), fp8_depth(lane, 0));  // of the row 8 further down
    for (const int product : {0, 1})
      for (const int e : {0, 1}) ++columns[lane / 4][fp8_column(lane, e, product)];
  }
  for (int row = 0; row < 8; ++row)
    for (int i = 0; i < 16; ++i) {
      EXPECT_EQ(depth[row][i], 1) << i;
      EXPECT_EQ(columns[row][i], 1) << i;
    }
}

/// Each element of a and d, and each pair of b, is held by exactly one register of one lane; two
/// products' d side by side are the a of the next.
TEST(Fragments, HoldEveryElementOnceAndChain) {
  int a[16][16] = {}, b[16][8] = {}, d[16][8] = {};
  for (int lane = 0; lane < 32; ++lane) {
    for (int reg = 0; reg < 4; ++reg) {
      const Place place = a_place(lane, reg);
      ++a[place.row][place.column], ++a[place.row][place.column + 1];
      // Register 0 and 1 of a are elements 0, 1 and 2, 3 of the first d; 2 and 3 of the second's.
      const Place from = d_place(lane, 2 * (reg % 2));
      EXPECT_EQ(from.row, place.row);
      EXPECT_EQ(from.column + 8 * (reg / 2), place.column);
    }
    for (int reg = 0; reg < 2; ++reg) {
      const Place place = b_place(lane, reg);
      ++b[place.row][place.column], ++b[place.row + 1][place.column];
    }
    for (int e = 0; e < 4; ++e) ++d[d_place(lane, e).row][d_place(lane, e).column];
  }
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 16; ++column) {
      EXPECT_EQ(a[row][column], 1);
      if (column < 8) {
        EXPECT_EQ(b[row][column] + d[row][column], 2);
      }
    }
}

TEST(Sampling, PenalisesOncePerTokenAndPerOccurrence) {
  RowSampling row = {};
  row.repetition_penalty = 2;
  row.presence_penalty = 0.5;
  row.frequency_penalty = 0.25;
  EXPECT_EQ(penalised(3.0f, 0, row), 3.0f);
  EXPECT_EQ(penalised(3.0f, in_prompt, row), 1.5f);
  EXPECT_EQ(penalised(-3.0f, in_prompt, row), -6.0f);
  EXPECT_EQ(penalised(3.0f, 2, row), 0.5f);
  EXPECT_EQ(penalised(3.0f, in_prompt | 2, row), 0.5f);
}

TEST(Sampling, CountsTheWeightsThatAreEnough) {
  const double weights[] = {1.0, 0.5, 0.5, 0.1, 0.0};
  const auto weight = [&](int64_t i) { return weights[i]; };
  EXPECT_EQ(count_at_least(weight, 5, 0.5), 3);
  EXPECT_EQ(count_at_least(weight, 5, 1.0), 1);
  EXPECT_EQ(count_at_least(weight, 5, 0.0), 5);
  EXPECT_EQ(count_at_least(weight, 2, 0.2), 2);
  EXPECT_EQ(count_at_least(weight, 1, 0.2), 1);
}

TEST(Sampling, ARowWithoutADistributionIsKnown) {
  EXPECT_TRUE(exists(RowSoftmax{-3.0, 0}));
  for (const double normaliser : {double{NAN}, double{INFINITY}, -double{INFINITY}})
    EXPECT_FALSE(exists(RowSoftmax{normaliser, 0}));
}

}  // namespace
}  // namespace pecia::test
