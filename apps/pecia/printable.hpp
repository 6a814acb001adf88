// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Makes foreign text (ids, errors, file names) safe for a terminal.

#include <cstddef>
#include <string>
#include <string_view>

namespace pecia::app {

/// At most `max_bytes` of the text in one line, then "…" for the rest. Control characters are
/// escaped (lib/base/core/escaped), and bytes that are not UTF-8 become U+FFFD.
std::string printable(std::string_view text, size_t max_bytes = 3000);

/// Does the same to a text of several lines, whose line breaks stay.
std::string printable_lines(std::string_view text, size_t max_bytes = 3000);

}  // namespace pecia::app
