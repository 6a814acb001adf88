// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How long answers are expected to be, learned from the answers of this start that have ended.

#include <cstdint>

#include "lib/work/batch/request.hpp"

namespace pecia::schedule {

class AnswerLengths {
 public:
  /// Takes in an answer that has ended, and might have had `allowed` tokens.
  void add(int64_t tokens, int64_t allowed) {
    ++answers_;
    tokens_ += tokens;
    allowed_ += allowed;
  }
  /// Output tokens that the turn is expected still to need after the `given` ones. This is the most
  /// that it may have until four answers have ended; then their mean share of that, plus a quarter,
  /// but at least 1. 0 where it may have no more.
  ///
  ///     four of 10 tokens each that might have had 100, 3 given of 200:   1.25 · 0.1 · 200 − 3 = 22
  double expected(const batch::Turn& turn, int64_t given) const;

 private:
  int64_t answers_ = 0, tokens_ = 0, allowed_ = 0;
};

}  // namespace pecia::schedule
