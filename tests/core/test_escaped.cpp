// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/base/core/escaped.hpp"

namespace pecia {
namespace {

TEST(Escaped, LeavesNothingThatATerminalObeys) {
  EXPECT_EQ(escaped("a\x1b[2J\x7f\nb\r\t"), R"(a\x1b[2J\x7f\nb\r\t)");
  EXPECT_EQ(escaped("\xc2\x9b"
                    "31m"),
            R"(\x9b31m)")
      << "the 8-bit control sequence introducer";
  EXPECT_EQ(escaped(std::string_view("\0", 1)), R"(\x00)");
}

TEST(Escaped, KeepsTheTextsOfAllLanguages) {
  EXPECT_EQ(escaped("Zoë \xc2\xa0 文書 é\xc3\x9b"), "Zoë \xc2\xa0 文書 é\xc3\x9b");
  EXPECT_EQ(escaped(""), "");
  EXPECT_EQ(escaped("\xc2"), "\xc2") << "an incomplete character at the end";
}

TEST(Escaped, LeavesTheBreaksOfLinesWhereAsked) {
  EXPECT_EQ(escaped_lines("a\nb\x1b"), "a\nb\\x1b");
}

}  // namespace
}  // namespace pecia
