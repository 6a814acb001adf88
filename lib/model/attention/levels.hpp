// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Levels of sparse attention over ranks that share a sequence's tokens: each rank attends its own
/// part of them while others' tokens travel. Source: CSPS, "levels".

#include "lib/model/attention/level_attention.hpp"

namespace pecia::attention {

class Levels : public LevelAttention {
 public:
  /// `ranks.heads` is null. `rank` is this rank's place among all ranks of the replica's ring.
  using LevelAttention::LevelAttention;

  /// The team is all instances without holders, rows are contiguous, and nothing is placed.
  void begin_pass(const PassRows& rows, std::span<const kernels::Window> windows) override;

 private:
  SequenceParts parts_of(const PassRows& rows, const parallel::PassSequence& of) const;
  void find_sinks(const PassRows& rows, const parallel::PassSequence& of,
                  SequenceParts& sequence) const;
};

}  // namespace pecia::attention
