// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/engine/schedule/draft_acceptance.hpp"

namespace pecia::schedule {
namespace {

TEST(DraftAcceptance, ExpectsMoreOfLongerMatches) {
  const DraftAcceptance acceptance;
  double before = 0;
  for (const int64_t match : {2, 3, 5, 9, 17, 64}) {
    EXPECT_GT(acceptance.rate(match), before);
    before = acceptance.rate(match);
  }
  EXPECT_EQ(acceptance.rate(3), acceptance.rate(4));
  EXPECT_LT(before, 1);
}

TEST(DraftAcceptance, LearnsFromWhatBecameOfDrafts) {
  DraftAcceptance acceptance;
  const double other = acceptance.rate(20);
  for (int i = 0; i < 100; ++i) acceptance.add(5, 4, i % 2 == 0 ? 3 : 0);
  EXPECT_NEAR(acceptance.rate(8), 0.6, 0.02) << "three of five that were judged";
  EXPECT_EQ(acceptance.rate(20), other);
  for (int i = 0; i < 500; ++i) acceptance.add(5, 4, 0);
  EXPECT_LT(acceptance.rate(5), 0.1);
  for (int i = 0; i < 500; ++i) acceptance.add(5, 4, 4);
  EXPECT_GT(acceptance.rate(5), 0.95);
}

}  // namespace
}  // namespace pecia::schedule
