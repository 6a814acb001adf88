// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Builds the text of an answer token by token.

#include <optional>
#include <string>

#include "lib/files/text/detokenizer.hpp"
#include "lib/files/text/utf8.hpp"

namespace pecia::io {

/// How a token changes the text: first the step `before`, then `added` is appended.
struct TextChange {
  enum class Before {
    nothing,
    mark,   ///< marks this point: text after it may be removed again
    rewind  ///< removes the text that was added since the last mark
  };
  Before before = Before::nothing;
  std::string added;  ///< complete characters
};

/// After all tokens of an answer, the changes together give the text of `tokenizers.decode(ids,
/// skip_special_tokens=True)`. Only a character that the last tokens begin but do not complete is
/// missing. Text is removed again only in runs of byte tokens: such a run is either text as a
/// whole, or one U+FFFD for each of its bytes. The work per token does not grow with the answer.
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
  int64_t left_out_ = 0;  ///< characters left out so far; strip_first once no more may be
  Utf8Reader all_;        ///< used where the detokenizer joins bytes
  struct Run {
    Utf8Reader reader;
    int64_t bytes = 0;
    bool replaced = false;  ///< the run is not UTF-8
    int64_t left_out = 0;   ///< value of left_out_ before the run
  };
  std::optional<Run> run_;  ///< the current run of byte tokens
};

}  // namespace pecia::io
