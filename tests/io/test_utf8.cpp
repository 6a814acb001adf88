#include <gtest/gtest.h>

#include "lib/io/utf8.hpp"

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

}  // namespace
}  // namespace pecia::io
