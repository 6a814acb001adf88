#pragma once
/// UTF-8 as Unicode defines it: no overlong forms, no surrogates, nothing above U+10FFFF.

#include <cstddef>
#include <string>
#include <string_view>

namespace pecia::io {

bool is_utf8(std::string_view text);

/// At most `max_bytes` of `text`, cut between characters. What is no UTF-8, and NUL, which would
/// end the text early in a fixed-length string, becomes U+FFFD.
std::string fitted_utf8(std::string_view text, size_t max_bytes);

}  // namespace pecia::io
