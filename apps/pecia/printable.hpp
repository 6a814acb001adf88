// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Text of others (ids, errors, file names) as a terminal may show it.

#include <cstddef>
#include <string>
#include <string_view>

namespace pecia::app {

/// At most `max_bytes` of the text, "…" for the rest. Control characters become '?', what is no
/// UTF-8 becomes U+FFFD; line breaks stay.
std::string printable(std::string_view text, size_t max_bytes = 3000);

}  // namespace pecia::app
