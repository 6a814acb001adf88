// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/draft_counts.hpp"

#include <algorithm>

namespace pecia::schedule {

void DraftCounts::add(const DraftedTokens& drafted, int64_t match, uint64_t instruction,
                      int64_t row) {
  ++passes;
  tokens += drafted;
  by_match[DraftAcceptance::class_of(match)] += drafted;
  add(InstructionDrafts{instruction, row, drafted});
}

void DraftCounts::add(const InstructionDrafts& drafts) {
  const bool is_rest = drafts.row == InstructionDrafts::others;
  const auto found = std::ranges::find_if(by_instruction, [&](const InstructionDrafts& of) {
    return (of.row == InstructionDrafts::others) == is_rest &&
           (is_rest || of.instruction == drafts.instruction);
  });
  if (found != by_instruction.end()) {
    found->tokens += drafts.tokens;
    if (!is_rest) found->row = std::min(found->row, drafts.row);
  } else if (is_rest || by_instruction.size() < most_instructions) {
    by_instruction.push_back(drafts);
  } else {
    add(InstructionDrafts{0, InstructionDrafts::others, drafts.tokens});
  }
}

DraftCounts& DraftCounts::operator+=(const DraftCounts& other) {
  passes += other.passes, tokens += other.tokens, again += other.again;
  priced += other.priced, saved_s += other.saved_s;
  for (size_t match = 0; match < by_match.size(); ++match) by_match[match] += other.by_match[match];
  for (const InstructionDrafts& drafts : other.by_instruction) add(drafts);
  return *this;
}

}  // namespace pecia::schedule
