// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How long answers are expected to be, learned from answers that have ended: of this start, and of
/// earlier ones where the run gives them.

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "lib/work/batch/request.hpp"

namespace pecia::schedule {

class AnswerLengths {
 public:
  /// Takes in the length of the turn's answer, which has ended and might have had `allowed` tokens.
  void add(const batch::Turn& turn, int64_t tokens, int64_t allowed);
  /// The same of an answer whose prompt is not known.
  void add_earlier(int32_t max_new_tokens, int64_t tokens);
  /// Output tokens that the turn is expected still to need after the `given` ones. This is the most
  /// that it may have until four answers have ended; then their mean share of that, plus a quarter,
  /// but at least 1. 0 where it may have no more.
  ///
  ///     four of 10 tokens each that might have had 100, 3 given of 200:   1.25 · 0.1 · 200 − 3 = 22
  double expected(const batch::Turn& turn, int64_t given) const;

  /// Output tokens that the turn will hardly exceed, given that it has more than `given`: a
  /// quantile of like answers, at least given + 1 and at most what it may have.
  ///
  /// Answers are alike that may be equally long and whose prompts are about equally long and end
  /// with the same tokens, as those of one instruction do. Where there are fewer than eight of
  /// these, their prompts may end otherwise; then they may be of any length. Before eight have ended
  /// it is a sixteenth of what the answer may have.
  int64_t likely(const batch::Turn& turn, int64_t given) const;

  /// Quantiles of all answers that have ended, for reports: a tenth, a half, nine tenths.
  std::array<int64_t, 3> quantiles() const;
  int64_t answers() const { return answers_; }

 private:
  /// Answers that are alike. −1: whatever the prompt.
  struct Class {
    int32_t max_new_tokens;
    int32_t prompt_bits = -1;  ///< of the number of the prompt's tokens
    int64_t last_tokens = -1;  ///< a hash of the prompt's last tokens
    auto operator<=>(const Class&) const = default;
  };
  void count(int64_t tokens, int64_t allowed);
  void insert(const Class& of, int64_t tokens);
  static std::array<Class, 3> classes_of(const batch::Turn& turn);

  int64_t answers_ = 0, tokens_ = 0, allowed_ = 0;
  std::map<Class, std::vector<int64_t>> lengths_;  ///< in ascending order
  std::map<int64_t, int64_t> count_;               ///< of all answers, by length
};

}  // namespace pecia::schedule
