// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/parallel/shift_rule.hpp"

namespace pecia::parallel {
namespace {

/// Llama-70B's layers on eight ranks: 1e15 FLOP/s, 4e12 B/s of memory, 4.5e11 B/s of link, 10 µs.
ShiftInputs eight_ranks(int sp, int tp) {
  return {{8192, 28672, 64, 8, 128, 1}, 80, 0, sp, tp, 1e15, 4e12, 4.5e11, 10e-6};
}

TEST(ShiftRule, PredictsAStepFromReadsProductsAndMessages) {
  const ShiftInputs inputs = eight_ranks(8, 1);
  const double elements = 8192.0 * (2 * (64 + 8) * 128 + 3 * 28672);
  // One token: reading the weights outlasts multiplying by them.
  const double base_sent =
      static_cast<double>(block_traffic(inputs.shape, Sharding::base, 8, 1, 1)) / 8;
  EXPECT_DOUBLE_EQ(step_seconds(inputs, Sharding::base, 1),
                   80 * (elements / 4e12 + base_sent / 4.5e11 + 2 * 10e-6));
  const double shift_sent = 2 * (8192.0 * 2 * 7 / 8) * 4;  // two all-reduces of one row
  EXPECT_DOUBLE_EQ(step_seconds(inputs, Sharding::shift, 1),
                   80 * (elements / 8 / 4e12 + shift_sent / 4.5e11 + 4 * 10e-6));
}

TEST(ShiftRule, ShiftsSmallBatchesAndNotLargeOnes) {
  const ShiftInputs inputs = eight_ranks(8, 1);
  const int64_t threshold = shift_threshold(inputs, 100000);
  EXPECT_GT(threshold, 32);
  EXPECT_LT(threshold, 8192);
  EXPECT_LE(step_seconds(inputs, Sharding::shift, threshold),
            step_seconds(inputs, Sharding::base, threshold));
  EXPECT_GT(step_seconds(inputs, Sharding::shift, threshold + 1),
            step_seconds(inputs, Sharding::base, threshold + 1));
}

TEST(ShiftRule, CountsTheVocabularyMatrix) {
  ShiftInputs inputs = eight_ranks(8, 1);
  const double without_base = step_seconds(inputs, Sharding::base, 1);
  const double without_shift = step_seconds(inputs, Sharding::shift, 1);
  inputs.vocab = 128256;
  const double read_s = 128256.0 * 8192 / 4e12;
  EXPECT_DOUBLE_EQ(step_seconds(inputs, Sharding::base, 1), without_base + read_s);
  EXPECT_DOUBLE_EQ(step_seconds(inputs, Sharding::shift, 1), without_shift + read_s / 8);
}

TEST(ShiftRule, SlowLinksLowerTheThreshold) {
  ShiftInputs slow = eight_ranks(8, 1);
  slow.link_bandwidth = 1e9;
  EXPECT_LT(shift_threshold(slow, 100000), shift_threshold(eight_ranks(8, 1), 100000));
  slow.exchange_s = 1;
  EXPECT_EQ(shift_threshold(slow, 100000), 0);
}

TEST(ShiftRule, GoesNoFurtherThanItsLimit) {
  EXPECT_EQ(shift_threshold(eight_ranks(8, 1), 3), 3);
}

}  // namespace
}  // namespace pecia::parallel
