// SPDX-License-Identifier: Apache-2.0
#pragma once
/// UTF-8 as Unicode defines it: no overlong forms, no surrogates, nothing above U+10FFFF.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pecia::io {

bool is_utf8(std::string_view text);

/// `text` cut to at most `max_bytes`, between two characters. Bytes that are not UTF-8, and NUL,
/// which would end a fixed-length string early, become U+FFFD.
std::string fitted_utf8(std::string_view text, size_t max_bytes);

/// U+FFFD, which replaces bytes that are not UTF-8.
inline constexpr std::string_view utf8_replacement = "\xef\xbf\xbd";

/// Decodes UTF-8 that arrives byte by byte. The longest valid beginning of a character that does
/// not continue becomes one U+FFFD, as Unicode recommends and Rust, Python and the web do.
class Utf8Reader {
 public:
  /// Appends the replacements that are due, then the character that `byte` completes, if any.
  void read(uint8_t byte, std::string& text);
  bool within_character() const { return !begun_.empty(); }
  bool replaced_any() const { return replaced_any_; }

 private:
  std::string begun_;           ///< bytes of the unfinished character
  int missing_ = 0;             ///< bytes that it still needs
  uint8_t low_ = 0, high_ = 0;  ///< range of its next byte
  bool replaced_any_ = false;
};

}  // namespace pecia::io
