// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Texts that end an answer, looked for in it while it grows.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/io/answer_text.hpp"

namespace pecia::schedule {

/// Finds the first occurrence of any of some texts (Knuth, Morris and Pratt). Text may be taken
/// back to a mark. Work per byte does not grow with the answer.
class TextSearch {
 public:
  /// `texts`: none of them empty.
  explicit TextSearch(const std::vector<std::string>& texts);

  /// Bytes before the occurrence that ends first, of those that end together the longest; absent
  /// as long as there is none.
  std::optional<int64_t> read(const io::TextChange& change);

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t> border;  ///< [n]: longest proper prefix that ends the first n bytes
  };
  struct Place {
    int64_t bytes = 0;            ///< read
    std::vector<size_t> matched;  ///< by pattern: how much of it ends here
  };
  std::optional<int64_t> read_byte(char byte);

  std::vector<Pattern> patterns_;
  Place place_, mark_;
};

/// The stop strings of a turn and its answer's text so far. Special tokens have no text.
class StopStrings {
 public:
  /// `detokenizer` outlives this object.
  StopStrings(const io::Detokenizer& detokenizer, const std::vector<std::string>& texts)
      : text_(detokenizer), search_(texts) {}

  /// The answer's next token. Where it completes a stop string: the bytes of text before it. Then
  /// the answer has ended.
  std::optional<int64_t> read(int32_t token) { return search_.read(text_.read(token)); }

 private:
  io::AnswerText text_;
  TextSearch search_;
};

}  // namespace pecia::schedule
