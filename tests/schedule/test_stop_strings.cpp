// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "lib/base/core/random.hpp"
#include "lib/engine/schedule/stop_strings.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::schedule {
namespace {

using Texts = std::vector<std::string>;
using Before = io::TextChange::Before;

std::optional<int64_t> found_in(const Texts& stop, const Texts& pieces) {
  TextSearch search(stop);
  for (const std::string& piece : pieces)
    if (const auto before = search.read({Before::nothing, piece})) return before;
  return {};
}

TEST(TextSearch, FindsATextWithinAndAcrossPieces) {
  EXPECT_EQ(found_in({"end"}, {"the end."}), 4);
  EXPECT_EQ(found_in({"end"}, {"the e", "n", "d."}), 4);
  EXPECT_EQ(found_in({"end"}, {"", "end"}), 0);
  EXPECT_EQ(found_in({"end"}, {"the en", "", "t", "he"}), std::nullopt);
  EXPECT_EQ(found_in({"é!"}, {"caf\xc3", "\xa9!"}), 3);
}

TEST(TextSearch, GoesBackToWhatMayStillBeABeginning) {
  EXPECT_EQ(found_in({"aab"}, {"a", "aa", "b"}), 1);
  EXPECT_EQ(found_in({"abab!"}, {"ababab", "ab!"}), 4);
  EXPECT_EQ(found_in({"aaa"}, {"aa", "baaa"}), 3);
}

TEST(TextSearch, TakesTheTextThatEndsFirst) {
  EXPECT_EQ(found_in({"bcde", "cd"}, {"abcde"}), 2);
  EXPECT_EQ(found_in({"cd", "bcde"}, {"abcde"}), 2);
  EXPECT_EQ(found_in({"d", "bcd", "cd"}, {"abcd"}), 1) << "of equal ends the first beginning";
  EXPECT_EQ(found_in({"x", "x"}, {"abx"}), 2);
}

TEST(TextSearch, ForgetsWhatIsTakenBack) {
  TextSearch search({"aab"});
  EXPECT_EQ(search.read({Before::nothing, "xa"}), std::nullopt);
  EXPECT_EQ(search.read({Before::mark, "a"}), std::nullopt);
  EXPECT_EQ(search.read({Before::rewind, "?"}), std::nullopt);
  EXPECT_EQ(search.read({Before::nothing, "b"}), std::nullopt) << "xa?b";
  EXPECT_EQ(search.read({Before::nothing, "aab"}), 4);
}

TEST(TextSearch, FindsWhatASearchInTheWholeTextDoes) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    uint64_t index = 0;
    const auto draw = [&](int64_t count) {
      return static_cast<int64_t>(uniform(seed, index++) * static_cast<double>(count));
    };
    const auto letters = [&](int64_t length) {
      std::string text;
      for (int64_t i = 0; i < length; ++i) text += static_cast<char>('a' + draw(2));
      return text;
    };
    const std::string text = letters(60);
    const Texts stop = {letters(1 + draw(8)), letters(1 + draw(8))};
    std::optional<int64_t> wanted;
    for (size_t end = 1; end <= text.size() && !wanted; ++end)
      for (size_t begin = 0; begin < end && !wanted; ++begin)
        for (const std::string& each : stop)
          if (text.substr(begin, end - begin) == each) wanted = static_cast<int64_t>(begin);
    Texts pieces;
    for (size_t at = 0; at < text.size();) {
      pieces.push_back(text.substr(at, draw(4)));
      at += pieces.back().size();
    }
    EXPECT_EQ(found_in(stop, pieces), wanted) << text << ' ' << stop[0] << ' ' << stop[1];
  }
}

/// Tokens 0 … 255 are bytes, 256 is "aaaa", 257 is special.
io::Detokenizer bytes_and_text() {
  const test::TempFolder folder;
  std::string vocab = R"("aaaa": 256)";
  for (int byte = 0; byte < 256; ++byte) vocab += fmt::format(R"(, "<0x{:02X}>": {})", byte, byte);
  std::ofstream(folder / "tokenizer.json")
      << R"({"added_tokens": [{"id": 257, "content": "</s>", "special": true}],
             "decoder": {"type": "ByteFallback"}, "model": {"type": "BPE", "vocab": {)"
      << vocab << "}}}";
  return io::Detokenizer(folder / "tokenizer.json");
}

TEST(StopStrings, CountBytesOfTheTextAsItIsDecoded) {
  const io::Detokenizer detokenizer = bytes_and_text();
  StopStrings stop(detokenizer, {"\n\n"});
  EXPECT_EQ(stop.read(256), std::nullopt);
  EXPECT_EQ(stop.read('\n'), std::nullopt);
  EXPECT_EQ(stop.read(0xff), std::nullopt) << "the run is no text: two U+FFFD of 3 bytes";
  EXPECT_EQ(stop.read(256), std::nullopt);
  EXPECT_EQ(stop.read('\n'), std::nullopt);
  EXPECT_EQ(stop.read(257), std::nullopt) << "has no text";
  EXPECT_EQ(stop.read('\n'), 4 + 2 * 3 + 4);
}

/// A minute and more where each token's work grew with the answer; this takes milliseconds.
TEST(StopStrings, ReadAMillionTokensInNoTime) {
  const io::Detokenizer detokenizer = bytes_and_text();
  StopStrings stop(detokenizer, {std::string(1000, 'a').append("b"), "aaac"});
  for (int i = 0; i < 500'000; ++i) ASSERT_EQ(stop.read('a'), std::nullopt) << "one run of bytes";
  for (int i = 0; i < 500'000; ++i) ASSERT_EQ(stop.read(256), std::nullopt);
  EXPECT_EQ(stop.read('b'), 2'500'000 - 1000);
}

}  // namespace
}  // namespace pecia::schedule
