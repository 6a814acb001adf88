// SPDX-License-Identifier: Apache-2.0
/// Which tokens a shape allows, with a vocabulary of single characters and a few longer tokens.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <random>

#include "lib/base/core/error.hpp"
#include "lib/files/grammar/grammars.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::grammar {
namespace {

constexpr int32_t stop = 0, special = 1, first_text = 2;

/// All printable ASCII characters, one token each, and some of several.
class Shapes : public testing::Test {
 protected:
  void SetUp() override {
    if (!why_none().empty()) GTEST_SKIP() << why_none();
    for (char c = ' '; c <= '~'; ++c) texts_.push_back({c});
    for (const char* text : {"true", "{\"", "\": ", "yes", "no", "ye"}) texts_.push_back(text);
    std::string vocab;
    for (size_t i = 0; i < texts_.size(); ++i) {
      std::string text;
      for (const char c : texts_[i]) {
        if (c == '"' || c == '\\') text += '\\';
        text += c == ' ' ? "Ġ" : std::string{c};  // as ByteLevel writes a blank
      }
      vocab += (i == 0 ? "\"" : ", \"") + text + "\": " + std::to_string(first_text + i);
    }
    std::ofstream(folder_ / "tokenizer.json")
        << R"({"added_tokens": [{"id": 0, "content": "<stop>", "special": true},
                {"id": 1, "content": "yes<special>", "special": true}],
               "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": {)"
        << vocab << "}}}";
    detokenizer_.emplace(folder_ / "tokenizer.json");
    vocab_ = first_text + std::ssize(texts_) + 3;  // logits may be more than tokens
    grammars_ = make_grammars(*detokenizer_, vocab_, {stop}, 1);
  }

  int32_t token(const std::string& text) const {
    const auto found = std::find(texts_.begin(), texts_.end(), text);
    EXPECT_NE(found, texts_.end()) << text;
    return first_text + static_cast<int32_t>(found - texts_.begin());
  }
  std::vector<int32_t> allowed(Matcher& matcher) const {
    std::vector<uint32_t> words(words_of(vocab_), 0xa5a5a5a5u);
    const int64_t count = matcher.allow(words);
    std::vector<int32_t> tokens;
    for (int32_t bit = 0; bit < 32 * std::ssize(words); ++bit)
      if ((words[bit / 32] >> bit % 32 & 1) != 0) tokens.push_back(bit);
    EXPECT_EQ(count, std::ssize(tokens));
    EXPECT_TRUE(tokens.empty() || tokens.back() < vocab_) << "bits beyond the vocabulary";
    return tokens;
  }
  bool accepts(Matcher& matcher, const std::string& text) const {
    for (const char c : text)
      if (!matcher.accept(token({c}))) return false;
    return true;
  }
  /// Any answer that the matcher allows, by random choices.
  std::string random_answer(Matcher& matcher, uint32_t seed, int most) const {
    std::mt19937 random(seed);
    std::string answer;
    for (int i = 0; i < most; ++i) {
      const auto tokens = allowed(matcher);
      if (tokens.empty()) break;
      // It ends as soon as it may.
      const bool ends = std::count(tokens.begin(), tokens.end(), stop) > 0;
      const int32_t next = ends ? stop : tokens[random() % tokens.size()];
      EXPECT_TRUE(matcher.accept(next));
      if (next == stop) break;
      answer += texts_[next - first_text];
    }
    return answer;
  }

  test::TempFolder folder_;
  std::vector<std::string> texts_;
  std::optional<io::Detokenizer> detokenizer_;
  int64_t vocab_ = 0;
  std::unique_ptr<Grammars> grammars_;
};

TEST_F(Shapes, OfAChoiceAllowOneOfItsTexts) {
  const auto matcher = grammars_->matcher(shape_of_choice({"yes", "no, \"it\" is not"}));
  EXPECT_EQ(allowed(*matcher),
            (std::vector<int32_t>{token("n"), token("y"), token("yes"), token("no"), token("ye")}));
  EXPECT_FALSE(matcher->is_complete());
  EXPECT_FALSE(matcher->accept(token("x")));
  EXPECT_FALSE(matcher->accept(special));
  EXPECT_TRUE(matcher->accept(token("ye")));
  EXPECT_EQ(allowed(*matcher), (std::vector<int32_t>{token("s")}));
  EXPECT_TRUE(matcher->accept(token("s")));
  EXPECT_TRUE(matcher->is_complete());
  EXPECT_EQ(allowed(*matcher), (std::vector<int32_t>{stop}));
  EXPECT_TRUE(matcher->accept(stop));
  EXPECT_TRUE(matcher->is_complete());
  EXPECT_EQ(allowed(*matcher), std::vector<int32_t>{});
  EXPECT_FALSE(matcher->accept(token("y"))) << "nothing comes after the end";

  const auto other = grammars_->matcher(shape_of_choice({"yes", "no, \"it\" is not"}));
  EXPECT_TRUE(accepts(*other, "no, \"it\" is not"));
  EXPECT_TRUE(other->is_complete());
}

TEST_F(Shapes, OfARegularExpressionFollowIt) {
  const auto matcher = grammars_->matcher(shape_of_regex("[0-9]{2}-[ab]+"));
  EXPECT_TRUE(accepts(*matcher, "12-a"));
  EXPECT_TRUE(matcher->is_complete());
  EXPECT_EQ(allowed(*matcher), (std::vector<int32_t>{stop, token("a"), token("b")}));
  EXPECT_FALSE(accepts(*matcher, "1"));
}

TEST_F(Shapes, OfASchemaAllowWhatFits) {
  const std::string shape = shape_of_schema(R"({
    "type": "object", "additionalProperties": false, "required": ["ok", "n"],
    "properties": {"ok": {"type": "boolean"}, "n": {"enum": [1, 22]}}})");
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const auto matcher = grammars_->matcher(shape);
    const std::string answer = random_answer(*matcher, seed, 100);
    EXPECT_TRUE(matcher->is_complete()) << answer;
    EXPECT_TRUE(answer == R"({"ok": true, "n": 1})" || answer == R"({"ok": true, "n": 22})" ||
                answer == R"({"ok": false, "n": 1})" || answer == R"({"ok": false, "n": 22})")
        << answer;
  }
}

TEST_F(Shapes, WithErrorsAreRefusedByThem) {
  EXPECT_THROW(grammars_->matcher(shape_of_regex("(ab")), InputError);
  EXPECT_THROW(grammars_->matcher(shape_of_schema(R"({"type": "banana"})")), InputError);
}

TEST(ShapeTexts, AreJson) {
  EXPECT_EQ(shape_of_choice({"a", "b\""}), R"({"choice":["a","b\""]})");
  EXPECT_EQ(shape_of_schema("{ \"type\" :\"null\"}"), R"({"schema":{"type":"null"}})");
  EXPECT_THROW(shape_of_schema("{"), InputError);
}

TEST(ShapeTexts, SayWhatIsMissing) {
  if (why_none().empty()) GTEST_SKIP() << "this build has grammars";
  EXPECT_NE(why_none().find("scripts/setup.sh grammar"), std::string_view::npos);
}

}  // namespace
}  // namespace pecia::grammar
