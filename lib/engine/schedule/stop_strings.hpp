// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Looks for texts that end an answer, while the answer grows.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/files/text/answer_text.hpp"

namespace pecia::schedule {

/// Finds the first occurrence of any of several texts (Knuth, Morris and Pratt). The search can be
/// taken back to a mark. The work per byte does not grow with the answer.
class TextSearch {
 public:
  /// None of the `texts` may be empty.
  explicit TextSearch(const std::vector<std::string>& texts);

  /// Reads more text. Returns the bytes before the first occurrence to end. The result is absent
  /// while there is none. If several end together, it takes the longest.
  std::optional<int64_t> read(const io::TextChange& change);

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t> border;  ///< [n]: longest proper prefix that ends the first n bytes
  };
  struct Place {
    int64_t bytes = 0;            ///< bytes read
    std::vector<size_t> matched;  ///< by pattern: length of its prefix that ends here
  };
  std::optional<int64_t> read_byte(char byte);

  std::vector<Pattern> patterns_;
  Place place_, mark_;
};

/// The stop strings of a turn, with the text of its answer so far. Special tokens have no text.
class StopStrings {
 public:
  /// `detokenizer` must outlive this object.
  StopStrings(const io::Detokenizer& detokenizer, const std::vector<std::string>& texts)
      : text_(detokenizer), search_(texts) {}

  /// Reads the answer's next token. When it completes a stop string, the answer has ended, and the
  /// result is the bytes of text before that string.
  std::optional<int64_t> read(int32_t token) { return search_.read(text_.read(token)); }

 private:
  io::AnswerText text_;
  TextSearch search_;
};

}  // namespace pecia::schedule
