// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/ranks/parallel/shift_rule.hpp"

namespace pecia::parallel {
namespace {

/// Bytes of fp32 that one of eight ranks of Ulysses sends for a token on its way to heads (8 query
/// heads and a KV head of K and V to each other rank) and back, and of two all-reduces of its row.
constexpr double ulysses = (7.0 / 8) * (8 + 2 + 8) * 128 * 4, sums = 2 * (8192.0 * 2 * 7 / 8) * 4;

/// Llama-70B's layers on eight ranks: 1e15 FLOP/s, 4e12 B/s of memory, 4.5e11 B/s of link, 10 µs.
ShiftInputs eight_ranks(int sp, int tp) {
  return {.layer_elements = 8192 * (2 * (64 + 8) * 128 + 3 * 28672),
          .weight_bytes = 1,
          .vocab_bytes = 1,
          .layers = 80,
          .sp = sp,
          .tp = tp,
          .sent = {ulysses, sums},
          .flops = 1e15,
          .read_bandwidth = 4e12,
          .link_bandwidth = 4.5e11,
          .exchange_s = 10e-6};
}

TEST(ShiftRule, PredictsAStepFromReadsProductsAndMessages) {
  const ShiftInputs inputs = eight_ranks(8, 1);
  const double elements = 8192.0 * (2 * (64 + 8) * 128 + 3 * 28672);
  // One token: reading the weights outlasts multiplying by them.
  EXPECT_DOUBLE_EQ(step_seconds(inputs, Sharding::base, 1),
                   80 * (elements / 4e12 + ulysses / 4.5e11 + 2 * 10e-6));
  EXPECT_DOUBLE_EQ(step_seconds(inputs, Sharding::shift, 1),
                   80 * (elements / 8 / 4e12 + sums / 4.5e11 + 4 * 10e-6));
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
  inputs.vocab_elements = 128256 * 8192;
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
