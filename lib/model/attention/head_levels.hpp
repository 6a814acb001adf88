// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Levels of sparse attention over ranks that share heads: each has all tokens of its heads (TP). A
/// sequence, its cached tokens and its rows together, counts as cut into consecutive equal parts,
/// one for each of the ranks. Each rank attends all parts, and no tokens travel.
/// Source: CSPS, "SP-TP".

#include "lib/model/attention/level_attention.hpp"

namespace pecia::attention {

class HeadLevels : public LevelAttention {
 public:
  /// `ranks.heads` has the ranks that share heads. `rank` is this rank's place among them.
  using LevelAttention::LevelAttention;

  /// The team is one instance, rows are contiguous, and nothing is placed.
  void begin_pass(const PassRows& rows, std::span<const kernels::Window> windows) override;

 private:
  SequenceParts cut_into_parts(const PassRows& rows, const parallel::PassSequence& of,
                               int64_t first_row, AttentionCall& own) const;
  void keep_first(const parallel::PassSequence& of, SequenceParts& sequence) const;
};

}  // namespace pecia::attention
