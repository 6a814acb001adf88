// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "lib/base/core/archive.hpp"
#include "lib/engine/schedule/draft_acceptance.hpp"

namespace pecia::schedule {

/// Drafted tokens, and how many of these the answers went on with.
struct DraftedTokens {
  int64_t tried = 0, accepted = 0;

  DraftedTokens& operator+=(const DraftedTokens& other) {
    tried += other.tried, accepted += other.accepted;
    return *this;
  }
};

/// Drafts of answers to one instruction.
struct InstructionDrafts {
  static constexpr int64_t others = -1;

  uint64_t instruction = 0;  ///< instruction_of the prompt
  int64_t row = others;      ///< in the results, of the first of these answers; others: of the rest
  DraftedTokens tokens = {};

  template <typename A>
  void visit(A& archive) {
    archive(instruction), archive(row), archive(tokens);
  }
};

/// What became of drafts.
struct DraftCounts {
  static constexpr size_t most_instructions = 16;  ///< that are counted by themselves

  int64_t passes = 0;  ///< times that an answer had drafted tokens in a pass
  DraftedTokens tokens = {};
  int64_t again = 0;  ///< rows that were computed again, since a state had to go back
  /// Passes whose saved seconds could be estimated, and these seconds: what passes without drafts would
  /// have taken for the same tokens, less what these took.
  int64_t priced = 0;
  double saved_s = 0;
  std::array<DraftedTokens, DraftAcceptance::classes> by_match = {};
  std::vector<InstructionDrafts> by_instruction = {};

  /// Counts what was drafted for an answer in a pass, after a match of this length.
  void add(const DraftedTokens& drafted, int64_t match, uint64_t instruction, int64_t row);
  DraftCounts& operator+=(const DraftCounts& other);

  template <typename A>
  void visit(A& archive) {
    archive(passes), archive(tokens), archive(again), archive(priced), archive(saved_s);
    archive(by_match);
    visit_all(archive, by_instruction);
  }

 private:
  void add(const InstructionDrafts& drafts);
};

}  // namespace pecia::schedule
