// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "apps/pecia/tuned_text.hpp"
#include "tests/tune/made_up.hpp"

namespace pecia::app {
namespace {

using testing::HasSubstr;

TEST(TunedText, HasATableOfSettingsTheErrorsAndAChoiceForEachGoal) {
  tune::Tuned tuned = tune::made_up();
  tune::fit(tuned);
  const std::string text = tuned_text(tuned);
  EXPECT_THAT(text, HasSubstr("4 prompts of 1000 to 8000 tokens, means"));
  EXPECT_THAT(text, HasSubstr("  drop    deal  levels  parts               loss  same answers  "
                              "retrieval    TTFT s\n"));
  EXPECT_THAT(
      text,
      HasSubstr(
          " dense                                                                88%      7.90 "));
  EXPECT_THAT(
      text, HasSubstr("  0.00    even       2      1    0.0000 ± 0.0000          100%        88%"));
  EXPECT_THAT(
      text, HasSubstr("  0.50    even       2      4    0.0660 ± 0.0035           75%        44%"));
  EXPECT_THAT(text, HasSubstr("  0.90    even       3 "));
  EXPECT_THAT(text, HasSubstr("models of prompts that were held out, 40 samples: loss off by 0.0"));
  EXPECT_THAT(text,
              HasSubstr("goals with prompts that were held out: loss 0 kept (measured 0.0000)"));
  EXPECT_THAT(text, HasSubstr("70 % of dense TTFT "));
  EXPECT_THAT(text, testing::ContainsRegex("prompts of 2000 to 2000 tokens, dense TTFT [0-9.]+ s:\n"
                                           "  loss 0 "));
  EXPECT_THAT(text, testing::Not(HasSubstr("nothing that dropping saves")));
  EXPECT_THAT(text, HasSubstr("best measured: drop 0.00 at 2 levels in 1"));
}

TEST(TunedText, SaysWhereTimesShowNoSaving) {
  tune::Tuned tuned = tune::made_up();
  for (tune::Sample& sample : tuned.samples)
    sample.ttft_s = 1e-3 * static_cast<double>(sample.tokens) * (1 + sample.setting.drop / 100);
  tune::fit(tuned);
  EXPECT_THAT(tuned_text(tuned), HasSubstr("these times show nothing that dropping saves"));
}

}  // namespace
}  // namespace pecia::app
