// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "lib/simulation/tune/folds.hpp"

namespace pecia::tune {
namespace {

std::vector<Sample> samples_of(int prompts) {
  std::vector<Sample> samples;
  for (int prompt = 0; prompt < prompts; ++prompt)
    for (const double drop : {0.0, 0.5}) {
      samples.emplace_back().prompt = std::to_string(prompt);
      samples.back().setting.drop = drop;
    }
  return samples;
}

std::set<std::string> names(const std::vector<Sample>& samples) {
  std::set<std::string> found;
  for (const Sample& sample : samples) found.insert(sample.prompt);
  return found;
}

TEST(Folds, HoldEachPromptOutOnceWithAllItsSamples) {
  for (const int prompts : {2, 3, 10, 25}) {
    const auto folds = folds_of(samples_of(prompts));
    EXPECT_EQ(folds.size(), static_cast<size_t>(std::min(prompts, 10)));
    std::multiset<std::string> held;
    for (const Fold& fold : folds) {
      EXPECT_EQ(fold.fitted.size() + fold.held_out.size(), 2U * prompts);
      for (const std::string& name : names(fold.held_out)) {
        held.insert(name);
        EXPECT_FALSE(names(fold.fitted).contains(name));
      }
    }
    EXPECT_EQ(held.size(), static_cast<size_t>(prompts));
    EXPECT_EQ(std::set<std::string>(held.begin(), held.end()).size(), held.size());
  }
}

TEST(Folds, AreNoneOfOnePrompt) {
  EXPECT_TRUE(folds_of(samples_of(1)).empty());
  EXPECT_TRUE(folds_of({}).empty());
}

}  // namespace
}  // namespace pecia::tune
