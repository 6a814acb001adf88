// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/engine/schedule/draft_counts.hpp"

namespace pecia::schedule {
namespace {

int64_t tried_as(const DraftCounts& counts, int64_t row) {
  const auto found = std::ranges::find(counts.by_instruction, row, &InstructionDrafts::row);
  return found == counts.by_instruction.end() ? -1 : found->tokens.tried;
}

TEST(DraftCounts, AreByMatchAndByInstruction) {
  DraftCounts counts;
  counts.add({4, 3}, 2, 77, 9);
  counts.add({5, 0}, 20, 88, 3);
  counts.add({1, 1}, 64, 77, 5);
  EXPECT_EQ(counts.passes, 3);
  EXPECT_EQ(counts.tokens.tried, 10);
  EXPECT_EQ(counts.tokens.accepted, 4);
  EXPECT_EQ(counts.by_match[0].accepted, 3);
  EXPECT_EQ(counts.by_match[4].tried, 5) << "up to 32 tokens";
  EXPECT_EQ(counts.by_match[5].accepted, 1);
  EXPECT_EQ(tried_as(counts, 5), 5) << "the first of these answers";
  EXPECT_EQ(tried_as(counts, 3), 5);
}

TEST(DraftCounts, CountTheRestOfManyInstructionsTogether) {
  DraftCounts counts, others;
  for (uint64_t instruction = 0; instruction < 20; ++instruction)
    counts.add({1, 0}, 3, instruction, static_cast<int64_t>(instruction));
  EXPECT_EQ(std::ssize(counts.by_instruction), 17);
  EXPECT_EQ(tried_as(counts, InstructionDrafts::others), 4);
  others.add({2, 1}, 3, 15, 4);
  others.add({3, 1}, 3, 99, 50);
  others.again = 7, others.priced = 1, others.saved_s = 0.5;
  counts += from_bytes<DraftCounts>(to_bytes(others));
  EXPECT_EQ(counts.tokens.tried, 25);
  EXPECT_EQ(counts.again, 7);
  EXPECT_EQ(counts.saved_s, 0.5);
  EXPECT_EQ(tried_as(counts, 4), 1) << "of another instruction";
  EXPECT_EQ(tried_as(counts, InstructionDrafts::others), 7);
  for (size_t match = 0; match < DraftAcceptance::classes; ++match) {
    const auto longest = DraftAcceptance::longest_of(match);
    if (longest) {
      EXPECT_EQ(DraftAcceptance::class_of(*longest), match);
    }
    EXPECT_EQ(DraftAcceptance::class_of(longest.value_or(1000) + 1),
              std::min(match + 1, DraftAcceptance::classes - 1));
  }
}

}  // namespace
}  // namespace pecia::schedule
