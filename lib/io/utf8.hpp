// SPDX-License-Identifier: Apache-2.0
#pragma once
/// UTF-8 as Unicode defines it: no overlong forms, no surrogates, nothing above U+10FFFF.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pecia::io {

bool is_utf8(std::string_view text);

/// At most `max_bytes` of `text`, cut between characters. What is no UTF-8, and NUL, which would
/// end the text early in a fixed-length string, becomes U+FFFD.
std::string fitted_utf8(std::string_view text, size_t max_bytes);

/// U+FFFD, which stands for what is no UTF-8.
inline constexpr std::string_view utf8_replacement = "\xef\xbf\xbd";

/// Bytes that come one by one, as UTF-8. Each longest beginning of a character that does not go on
/// as one becomes a U+FFFD, as Unicode recommends and Rust, Python and the web do.
class Utf8Reader {
 public:
  /// Appends the character that `byte` completes, if any, and before it what is replaced.
  void read(uint8_t byte, std::string& text);
  bool within_character() const { return !begun_.empty(); }
  bool replaced_any() const { return replaced_any_; }

 private:
  std::string begun_;           ///< of the character under way
  int missing_ = 0;             ///< bytes of it
  uint8_t low_ = 0, high_ = 0;  ///< which its next byte may be
  bool replaced_any_ = false;
};

}  // namespace pecia::io
