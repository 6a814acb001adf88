// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How far the predictions of a model whose numbers are rounded are from those of a model whose
/// numbers are not.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <vector>

#include "lib/work/batch/request.hpp"

namespace pecia::test {

/// √(Σ error² / Σ deviation²) of the log-probabilities of all that was predicted from the same
/// tokens; the deviation is that of `wanted` from its mean. Both were made with logprobs and
/// prompt_logprobs −1, and every turn is done. `left_out`: the share of predictions that is left out,
/// those that are off most. Of a mixture, rows near a tie may take another expert.
inline double prediction_difference(const std::map<int64_t, batch::Finished>& found,
                                    const std::map<int64_t, batch::Finished>& wanted, int64_t vocab,
                                    double left_out = 0) {
  struct Sums {
    double error = 0, deviation = 0;
  };
  std::vector<Sums> predictions;
  const auto add = [&](const std::vector<float>& a, const std::vector<float>& b, size_t row) {
    const auto of_row = [&](const std::vector<float>& all) {
      return std::span(all).subspan(row * static_cast<size_t>(vocab), static_cast<size_t>(vocab));
    };
    Sums& sums = predictions.emplace_back();
    double mean = 0;
    for (const float value : of_row(b)) mean += value / static_cast<double>(vocab);
    for (int64_t i = 0; i < vocab; ++i) {
      sums.error += std::pow(double{of_row(a)[i]} - of_row(b)[i], 2);
      sums.deviation += std::pow(of_row(b)[i] - mean, 2);
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
  std::ranges::sort(predictions, {}, &Sums::error);
  const auto kept = static_cast<size_t>(std::ceil((1 - left_out) * std::ssize(predictions)));
  Sums all;
  for (const Sums& one : std::span(predictions).first(kept))
    all.error += one.error, all.deviation += one.deviation;
  return std::sqrt(all.error / all.deviation);
}

}  // namespace pecia::test
