// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Answers that have ended, to be continued from. The latest ones are kept: at most a given number of
/// tokens, of which the older half leaves at a time.

#include "lib/engine/drafts/suffix_index.hpp"

namespace pecia::drafts {

class AnswerIndex {
 public:
  /// Takes at most most_tokens · SuffixIndex::bytes_per_token of memory.
  explicit AnswerIndex(int64_t most_tokens) : half_(most_tokens / 2) {}

  /// Of an answer that is longer than half of what is kept, the first tokens are.
  void add(std::span<const int32_t> answer);
  /// Likewise as SuffixIndex::continuation: the longer match, and of equal ones the later answers'.
  Draft continuation(std::span<const int32_t> end, int64_t most) const;
  int64_t size() const { return older_.size() + later_.size(); }  ///< in tokens

 private:
  int64_t half_;
  SuffixIndex older_, later_;
};

}  // namespace pecia::drafts
