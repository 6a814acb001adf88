// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Text from elsewhere (ids, titles, file names) in what people read: a terminal must not obey it,
/// and one line must stay one.

#include <string>
#include <string_view>

namespace pecia {

/// The text with \n, \r, \t, and \x1b or the like for other control characters of ASCII and
/// Latin-1 (U+0080 to U+009F in UTF-8, which terminals may obey, too). All other bytes stay.
std::string escaped(std::string_view text);

/// Does the same to a text of several lines, whose line breaks stay.
std::string escaped_lines(std::string_view text);

}  // namespace pecia
