// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/files/text/utf8.hpp"

namespace pecia::io {
namespace {

using namespace std::string_literals;

TEST(IsUtf8, AcceptsTheFirstAndLastOfEveryLength) {
  for (const auto& text :
       {""s, "\x7f"s, "\xc2\x80"s, "\xdf\xbf"s, "\xe0\xa0\x80"s, "\xed\x9f\xbf"s, "\xee\x80\x80"s,
        "\xef\xbf\xbf"s, "\xf0\x90\x80\x80"s, "\xf4\x8f\xbf\xbf"s, "aé€𝄞"s})
    EXPECT_TRUE(is_utf8(text)) << text;
}

TEST(IsUtf8, RefusesWhatUnicodeDoes) {
  for (const auto& text :
       {"\x80"s, "\xc0\xaf"s, "\xc1\xbf"s, "\xe0\x9f\xbf"s, "\xed\xa0\x80"s, "\xf0\x8f\xbf\xbf"s,
        "\xf4\x90\x80\x80"s, "\xf5\x80\x80\x80"s, "\xe2\x82"s, "a\xff"s, "\xc3("s})
    EXPECT_FALSE(is_utf8(text));
}

TEST(FittedUtf8, CutsBetweenCharacters) {
  EXPECT_EQ(fitted_utf8("a€b", 5), "a€b");
  EXPECT_EQ(fitted_utf8("a€b", 4), "a€");
  EXPECT_EQ(fitted_utf8("a€b", 3), "a");
  EXPECT_EQ(fitted_utf8("a€b", 1), "a");
  EXPECT_EQ(fitted_utf8("€", 2), "");
}

TEST(FittedUtf8, ReplacesWhatIsNoText) {
  EXPECT_EQ(fitted_utf8("a\xff"s + "b\0c"s, 100),
            "a\xef\xbf\xbd"
            "b\xef\xbf\xbd"
            "c");
  EXPECT_EQ(fitted_utf8("\xff\xff", 5), "\xef\xbf\xbd");
}

std::string read_by_bytes(const std::string& bytes) {
  Utf8Reader reader;
  std::string text;
  for (const char byte : bytes) reader.read(static_cast<uint8_t>(byte), text);
  return text;
}

TEST(Utf8Reader, GivesCharactersWhole) {
  const std::string text = "aé€𝄞\0z"s;
  EXPECT_EQ(read_by_bytes(text), text);
  Utf8Reader reader;
  std::string read;
  for (const char byte : "\xe2\x82"s) reader.read(static_cast<uint8_t>(byte), read);
  EXPECT_EQ(read, "");
  EXPECT_TRUE(reader.within_character());
  reader.read(0xac, read);
  EXPECT_EQ(read, "€");
  EXPECT_FALSE(reader.within_character());
  EXPECT_FALSE(reader.replaced_any());
}

TEST(Utf8Reader, ReplacesTheLongestBeginningsThatDoNotGoOn) {
  const std::string no_text(utf8_replacement);
  EXPECT_EQ(read_by_bytes("\xe2\x82z"), no_text + "z");
  EXPECT_EQ(read_by_bytes("\xe2\xe2\x82\xac"), no_text + "€");
  EXPECT_EQ(read_by_bytes("\xf0\x9d\x84\x80\x80"), "\xf0\x9d\x84\x80" + no_text);
  EXPECT_EQ(read_by_bytes("\xed\xa0\x80"), no_text + no_text + no_text) << "a surrogate";
  EXPECT_EQ(read_by_bytes("\xe0\x9f\xbf"), no_text + no_text + no_text) << "overlong";
  EXPECT_EQ(read_by_bytes("\xc0\xff"), no_text + no_text);
}

}  // namespace
}  // namespace pecia::io
