// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How far the predictions of a model whose numbers are rounded are from those of a model whose
/// numbers are not.

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <span>

#include "lib/work/batch/request.hpp"

namespace pecia::test {

/// √(Σ error² / Σ deviation²) of the log-probabilities of all that was predicted from the same
/// tokens; the deviation is that of `wanted` from its mean. Both were made with logprobs and
/// prompt_logprobs −1, and every turn is done.
inline double prediction_difference(const std::map<int64_t, batch::Finished>& found,
                                    const std::map<int64_t, batch::Finished>& wanted,
                                    int64_t vocab) {
  double error = 0, deviation = 0;
  const auto add = [&](const std::vector<float>& a, const std::vector<float>& b, size_t row) {
    const auto of_row = [&](const std::vector<float>& all) {
      return std::span(all).subspan(row * static_cast<size_t>(vocab), static_cast<size_t>(vocab));
    };
    double mean = 0;
    for (const float value : of_row(b)) mean += value / static_cast<double>(vocab);
    for (int64_t i = 0; i < vocab; ++i) {
      error += std::pow(double{of_row(a)[i]} - of_row(b)[i], 2);
      deviation += std::pow(of_row(b)[i] - mean, 2);
    }
  };
  for (const auto& [row, want] : wanted) {
    const io::TurnResult &a = found.at(row).result, &b = want.result;
    EXPECT_EQ(found.at(row).state, io::TurnState::done) << a.error;
    EXPECT_EQ(a.prompt_top_logprobs.size(), b.prompt_top_logprobs.size());
    EXPECT_EQ(a.tokens.size(), b.tokens.size());
    for (size_t i = 0; i < b.prompt_top_logprobs.size() / static_cast<size_t>(vocab); ++i)
      if (!std::isnan(b.prompt_top_logprobs[i * vocab]))  // a first token has no prediction
        add(a.prompt_top_logprobs, b.prompt_top_logprobs, i);
    for (size_t i = 0; i < b.tokens.size(); ++i) {
      add(a.top_logprobs, b.top_logprobs, i);
      if (a.tokens[i] != b.tokens[i]) break;  // what follows is predicted from another
    }
  }
  return std::sqrt(error / deviation);
}

}  // namespace pecia::test
