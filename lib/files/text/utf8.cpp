// SPDX-License-Identifier: Apache-2.0
#include "lib/files/text/utf8.hpp"

namespace pecia::io {
namespace {

/// Number of bytes of the first character of `text`; 0 when it does not begin with one.
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  // The second byte reveals overlong forms (e0, f0), surrogates (ed) and values above U+10FFFF
  // (f4).
  const unsigned char second = byte(1);
  if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
      (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f))
    return 0;
  return length;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = character_bytes(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string fitted_utf8(std::string_view text, size_t max_bytes) {
  std::string fitted;
  while (!text.empty()) {
    const size_t length = character_bytes(text);
    const bool kept = length > 0 && text.front() != '\0';
    const std::string_view next = kept ? text.substr(0, length) : utf8_replacement;
    if (fitted.size() + next.size() > max_bytes) break;
    fitted += next;
    text.remove_prefix(kept ? length : 1);
  }
  return fitted;
}

void Utf8Reader::read(uint8_t byte, std::string& text) {
  const auto replace = [&] {
    text += utf8_replacement;
    replaced_any_ = true;
  };
  if (within_character()) {
    if (byte >= low_ && byte <= high_) {
      begun_ += static_cast<char>(byte);
      low_ = 0x80, high_ = 0xbf;
      if (--missing_ == 0) {
        text += begun_;
        begun_.clear();
      }
      return;
    }
    begun_.clear();
    replace();
  }
  if (byte < 0x80) {
    text += static_cast<char>(byte);
  } else if (byte < 0xc2 || byte > 0xf4) {
    replace();
  } else {
    begun_ = static_cast<char>(byte);
    missing_ = byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : 1;
    // The second byte reveals overlong forms (e0, f0), surrogates (ed) and values above U+10FFFF.
    low_ = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80;
    high_ = byte == 0xed ? 0x9f : byte == 0xf4 ? 0x8f : 0xbf;
  }
}

}  // namespace pecia::io
