// SPDX-License-Identifier: Apache-2.0
#include "lib/files/text/answer_text.hpp"

#include <utility>

namespace pecia::io {
namespace {

std::string replacements(int64_t count) {
  std::string text;
  for (int64_t i = 0; i < count; ++i) text += utf8_replacement;
  return text;
}

}  // namespace

TextChange AnswerText::read(int32_t token) {
  const Detokenizer::Piece piece =
      begun_ ? detokenizer_->piece(token) : detokenizer_->first_piece(token);
  if (piece.kind == Detokenizer::Kind::none) return {};
  begun_ = true;
  if (piece.kind == Detokenizer::Kind::byte)
    return read_byte(static_cast<uint8_t>(piece.bytes.front()));

  TextChange change;
  if (detokenizer_->joins_bytes()) {
    for (const char byte : piece.bytes) all_.read(static_cast<uint8_t>(byte), change.added);
    return change;
  }
  const std::optional<Run> ended = std::exchange(run_, std::nullopt);
  if (ended && !ended->replaced && ended->reader.within_character()) {
    change.before = TextChange::Before::rewind;
    left_out_ = ended->left_out;
    change.added = stripped(replacements(ended->bytes));
  }
  change.added += stripped(std::string(piece.bytes));
  return change;
}

TextChange AnswerText::read_byte(uint8_t byte) {
  TextChange change;
  if (!run_) {
    run_.emplace().left_out = left_out_;
    change.before = TextChange::Before::mark;
  }
  Run& run = *run_;
  ++run.bytes;
  if (run.replaced) {
    change.added = utf8_replacement;
    return change;
  }
  std::string text;
  run.reader.read(byte, text);
  run.replaced = run.reader.replaced_any();
  if (!run.replaced) {
    change.added = stripped(std::move(text));
    return change;
  }
  // If the run's first byte was already invalid, nothing needs to be removed.
  if (run.bytes > 1) change.before = TextChange::Before::rewind;
  left_out_ = run.left_out;
  change.added = stripped(replacements(run.bytes));
  return change;
}

/// Removes the characters that are left out at the answer's beginning.
std::string AnswerText::stripped(std::string text) {
  size_t count = 0;
  while (left_out_ < detokenizer_->strip_first() && count < text.size()) {
    if (text[count] == detokenizer_->stripped()) {
      ++count, ++left_out_;
    } else {
      left_out_ = detokenizer_->strip_first();
    }
  }
  text.erase(0, count);
  return text;
}

}  // namespace pecia::io
