// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How the cached tokens of a sequence were computed, so that they can be computed again.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pecia::schedule {

/// Tokens of one turn that follow each other: they were read, or they were generated.
struct TokenRun {
  int64_t tokens = 0;
  bool generated = false;
  int64_t prompt_end = 0;  ///< PlanItem::prompt_end
  int64_t stem_end = 0;    ///< of what was read: Turn::stem_end_tokens
  int64_t deal_shift = 0;  ///< of what was generated: ActiveSequence::deal_shift
};

/// A sequence that was forgotten: what it has to read again before it goes on.
struct Rereading {
  std::vector<int32_t> tokens;
  std::vector<TokenRun> runs;  ///< of these tokens, in this order; not empty
  size_t run = 0;              ///< the present one
  int64_t run_begin = 0;       ///< its place in `tokens`
  int64_t done = 0;            ///< its tokens that are cached

  const TokenRun& present() const { return runs[run]; }
  int64_t left_of_run() const { return present().tokens - done; }
  int64_t left() const { return static_cast<int64_t>(tokens.size()) - run_begin - done; }
};

}  // namespace pecia::schedule
