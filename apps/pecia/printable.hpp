// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Makes foreign text (ids, errors, file names) safe for a terminal.

#include <cstddef>
#include <string>
#include <string_view>

namespace pecia::app {

/// At most `max_bytes` of the text, then "…" for the rest. Control characters become '?', bytes
/// that are not UTF-8 become U+FFFD, and line breaks stay.
std::string printable(std::string_view text, size_t max_bytes = 3000);

}  // namespace pecia::app
