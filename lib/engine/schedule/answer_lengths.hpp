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

  /// Output tokens of a likely answer that has more than `given`: half of like answers are no longer.
  /// At least given + 1, and at most what the turn may have.
  ///
  /// Answers are alike that may be equally long and whose prompts are about equally long and end
  /// with the same tokens, as prompts of one instruction do. Where there are fewer than eight of
  /// these, their prompts may end otherwise; then they may be of any length. Before eight have ended
  /// it is a sixteenth of what the answer may have.
  int64_t likely(const batch::Turn& turn, int64_t given) const;

  /// Quantiles of all answers that have ended, for reports: a tenth, a half, nine tenths; zeros
  /// before.
  std::array<int64_t, 3> quantiles() const;

 private:
  /// Answers by length. There are as many lengths as an answer may have tokens at most.
  struct Lengths {
    std::map<int64_t, int64_t> count;
    int64_t answers = 0;

    void add(int64_t tokens);
    /// The length that this share of the answers that are longer than `given` does not exceed;
    /// `given` where none is.
    int64_t quantile(double share, int64_t given) const;
  };
  /// Answers that are alike. −1: whatever the prompt.
  struct Class {
    int32_t max_new_tokens;
    int32_t prompt_bits = -1;  ///< of the number of the prompt's tokens
    int64_t last_tokens = -1;  ///< a hash of the prompt's last tokens
    auto operator<=>(const Class&) const = default;
  };
  static std::array<Class, 3> classes_of(const batch::Turn& turn);

  int64_t tokens_ = 0, allowed_ = 0;
  Lengths all_;
  std::map<Class, Lengths> like_;
};

}  // namespace pecia::schedule
