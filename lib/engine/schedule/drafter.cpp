// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/drafter.hpp"

#include <algorithm>
#include <utility>

#include "lib/engine/schedule/instruction.hpp"

namespace pecia::schedule {
namespace {

/// The index of the prefix that a branch begins with; null: the sequence is no branch.
const drafts::SuffixIndex* prefix_of(const ActiveSequence& sequence) {
  return sequence.is_branch() ? sequence.origin->text.get() : nullptr;
}

/// The index of a branch begins with the last tokens of its prefix, so that matches go on there.
void begin_index(ActiveSequence& sequence) {
  sequence.text = std::make_unique<drafts::SuffixIndex>();
  if (!sequence.is_branch()) return;
  RequestState& origin = *sequence.origin;
  if (!origin.text) {
    origin.text = std::make_unique<drafts::SuffixIndex>();
    origin.text->add(origin.cached);
  }
  sequence.text->add(origin.text->end());
}

/// Adds the tokens of the sequence that its index does not have.
void catch_up(ActiveSequence& sequence) {
  if (!sequence.text) begin_index(sequence);
  int64_t known = sequence.text->size();
  const drafts::SuffixIndex* const prefix = prefix_of(sequence);
  if (prefix != nullptr) known -= std::ssize(prefix->end());
  const std::vector<int32_t>& cached =
      prefix == nullptr ? sequence.origin->cached : sequence.own_cached;
  for (const std::span<const int32_t> part :
       {std::span<const int32_t>(cached), std::span<const int32_t>(sequence.unfed)}) {
    const int64_t skipped = std::min(known, std::ssize(part));
    sequence.text->add(part.subspan(skipped));
    known -= skipped;
  }
}

/// The first tokens of the draft that fit the answer's shape.
void keep_to_shape(grammar::Matcher& shape, std::vector<int32_t>& tokens) {
  int64_t fitting = 0;
  while (fitting < std::ssize(tokens) && shape.accept(tokens[fitting])) ++fitting;
  shape.take_back(fitting);
  tokens.resize(fitting);
}

}  // namespace

drafts::Draft Drafter::draft(ActiveSequence& sequence, int64_t most) {
  if (most <= 0) return {};
  catch_up(sequence);
  const drafts::SuffixIndex& text = *sequence.text;
  drafts::Draft draft = text.continuation(text.end(), most);
  const auto take_longer = [&](drafts::Draft other) {
    if (other.match > draft.match) draft = std::move(other);
  };
  if (const drafts::SuffixIndex* const prefix = prefix_of(sequence))
    take_longer(prefix->continuation(text.end(), most));
  if (const Answers* const answers = answers_to(sequence.current()))
    take_longer(answers->index.continuation(text.end(), most));
  if (limits_.change) limits_.change(sequence, most, draft.tokens);
  if (sequence.shape) keep_to_shape(*sequence.shape, draft.tokens);
  sequence.draft_match = draft.match;
  return draft;
}

/// The answers to the turn's instruction, if there are any; they are the last used then.
Drafter::Answers* Drafter::answers_to(const batch::Turn& turn) {
  const auto found =
      std::ranges::find(answers_, instruction_of(turn.tokens), &Answers::instruction);
  if (found == answers_.end()) return nullptr;
  answers_.splice(answers_.begin(), answers_, found);
  return &answers_.front();
}

void Drafter::add_answer(const batch::Turn& turn, std::span<const int32_t> answer) {
  Answers* answers = answers_to(turn);
  if (answers == nullptr) {
    if (answers_.size() == most_instructions) answers_.pop_back();
    answers = &answers_.emplace_front(Answers{instruction_of(turn.tokens)});
  }
  answers->index.add(answer);
}

}  // namespace pecia::schedule
