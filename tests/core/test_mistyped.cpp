// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "lib/base/core/mistyped.hpp"

namespace pecia {
namespace {

TEST(EditDistance, CountsChangesWithoutRegardToCase) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("Seed", "sEED"), 0u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("modle", "model"), 1u) << "neighbours swapped";
  EXPECT_EQ(edit_distance("abcd", "badc"), 2u);
  EXPECT_EQ(edit_distance("ca", "abc"), 3u);
}

TEST(MayMean, TakesWhatIsNear) {
  for (const auto& [typed, known] : {std::pair("sed", "seed"),
                                     {"modle", "model"},
                                     {"inpsect", "inspect"},
                                     {"ste", "set"},
                                     {"max_tokens", "max_new_tokens"},
                                     {"dpp", "dp"},
                                     {"cp", "dp"}})
    EXPECT_TRUE(may_mean(typed, known)) << typed << " " << known;
}

TEST(MayMean, LeavesOutWhatIsFar) {
  for (const auto& [typed, known] : {std::pair("xy", "dp"),
                                     {"foo", "seed"},
                                     {"job", "dp"},
                                     {"frobnicate", "inspect"},
                                     {"webhook", "output"},
                                     {"--unknown", "--fresh"},
                                     {"", "dp"}})
    EXPECT_FALSE(may_mean(typed, known)) << typed << " " << known;
  const std::string long_word(65, 'x');
  EXPECT_FALSE(may_mean(long_word, long_word)) << "no table of untold size";
}

}  // namespace
}  // namespace pecia
