// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Drafts the next tokens of answers from texts: a sequence's own, and the answers of this job to the
/// same instruction. Drafts never change an answer. The pass that has them samples the token after each
/// of their tokens as well, by the random number of its place, and the answer goes on with these up to
/// the first that was drafted otherwise (commit.cpp).

#include <list>

#include "lib/engine/drafts/answer_index.hpp"
#include "lib/engine/schedule/active_sequence.hpp"
#include "lib/engine/schedule/draft_acceptance.hpp"
#include "lib/engine/schedule/scheduler_limits.hpp"

namespace pecia::schedule {

class Drafter {
 public:
  // Answers of one instruction, and instructions: 32 MiB together (drafts::AnswerIndex).
  static constexpr int64_t most_answer_tokens = 65536;
  static constexpr size_t most_instructions = 16;

  explicit Drafter(const SchedulerLimits& limits) : limits_(limits.drafts) {}

  /// Up to `most` tokens that may follow those of a sequence which decodes. Reads what is new of its
  /// text: at most drafts::SuffixIndex::bytes_per_token of memory for each token of the sequence.
  /// Branches share the index of their prefix.
  drafts::Draft draft(ActiveSequence& sequence, int64_t most);
  /// Expected share of the tokens of its last draft that are right, of those whose predecessors were.
  double rate(const ActiveSequence& sequence) const {
    return acceptance_.rate(sequence.draft_match);
  }
  /// Takes in that the first `accepted` of `tried` drafted tokens of the sequence's pass were right.
  void add_outcome(const ActiveSequence& sequence, int64_t tried, int64_t accepted) {
    acceptance_.add(sequence.draft_match, tried, accepted);
  }
  /// Takes in the answer of a turn that has ended.
  void add_answer(const batch::Turn& turn, std::span<const int32_t> answer);

 private:
  struct Answers {
    uint64_t instruction = 0;
    drafts::AnswerIndex index = drafts::AnswerIndex(most_answer_tokens);
  };
  Answers* answers_to(const batch::Turn& turn);

  DraftLimits limits_;
  DraftAcceptance acceptance_;
  std::list<Answers> answers_;  ///< by instruction, the one that was used last first
};

}  // namespace pecia::schedule
