// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The text of an answer as it grows, token by token.

#include <optional>
#include <string>

#include "lib/io/detokenizer.hpp"
#include "lib/io/utf8.hpp"

namespace pecia::io {

/// How a token changes the text: first what `before` says, then `added` at the end.
struct TextChange {
  enum class Before {
    nothing,
    mark,   ///< from here on the text may be taken back
    rewind  ///< what was added since the last mark is taken back
  };
  Before before = Before::nothing;
  std::string added;  ///< whole characters
};

/// After all tokens of an answer, the changes together are the text that
/// `tokenizers.decode(ids, skip_special_tokens=True)` gives, up to a character that the last tokens
/// begin and do not end. Only runs of byte tokens are ever taken back: such a run is text as a
/// whole, or a U+FFFD for each of its bytes. Work per token does not grow with the answer.
class AnswerText {
 public:
  /// `detokenizer` outlives this object.
  explicit AnswerText(const Detokenizer& detokenizer) : detokenizer_(&detokenizer) {}

  TextChange read(int32_t token);

 private:
  TextChange read_byte(uint8_t byte);
  std::string stripped(std::string text);

  const Detokenizer* detokenizer_;
  bool begun_ = false;
  int64_t left_out_ = 0;  ///< characters by strip_first; strip_first itself when it has ended
  Utf8Reader all_;        ///< where the detokenizer joins bytes
  struct Run {
    Utf8Reader reader;
    int64_t bytes = 0;
    bool replaced = false;  ///< it is no UTF-8
    int64_t left_out = 0;   ///< as it was before the run
  };
  std::optional<Run> run_;  ///< of byte tokens, under way
};

}  // namespace pecia::io
