// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lib/base/core/error.hpp"
#include "lib/files/text/answer_text.hpp"
#include "tests/io/expect_error.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::io {
namespace {

using nlohmann::json;

std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(PECIA_TOKENIZERS) / name;
}

/// The text after all tokens.
std::string text_of(const Detokenizer& detokenizer, const std::vector<int32_t>& tokens) {
  AnswerText answer(detokenizer);
  std::string text;
  size_t mark = 0;
  for (const int32_t token : tokens) {
    const TextChange change = answer.read(token);
    if (change.before == TextChange::Before::mark) mark = text.size();
    if (change.before == TextChange::Before::rewind) text.resize(mark);
    text += change.added;
  }
  return text;
}

struct EveryTokenizer : testing::TestWithParam<const char*> {};

TEST_P(EveryTokenizer, DecodesAsTheLibraryDoes) {
  const Detokenizer detokenizer(golden(GetParam() + std::string(".json")));
  int cases = 0;
  for (const json& of : json::parse(std::ifstream(golden("cases.json")))) {
    if (of["tokenizer"] != GetParam()) continue;
    ++cases;
    EXPECT_EQ(text_of(detokenizer, of["ids"].get<std::vector<int32_t>>()),
              of["text"].get<std::string>())
        << of["ids"];
  }
  EXPECT_EQ(cases, 80);
}

INSTANTIATE_TEST_SUITE_P(Detokenizer, EveryTokenizer,
                         testing::Values("byte_level", "byte_fallback", "metaspace"));

/// A tokenizer.json of some tokens, and what `change` makes of it.
class Tokenizer : public testing::Test {
 protected:
  template <typename Change>
  std::filesystem::path write(const Change& change) {
    json root = {
        {"added_tokens", json::array({{{"id", 0}, {"content", "</s>"}, {"special", true}},
                                      {{"id", 1}, {"content", "a b"}, {"special", false}}})},
        {"decoder", {{"type", "ByteLevel"}}},
        {"model",
         {{"type", "BPE"},
          {"vocab", {{"Ġé", 2}, {"Ã", 3}, {"©", 4}, {"x", 6}}},
          {"merges", json::array({"a b", json::array({"c", "d"})})}}}};
    change(root);
    std::ofstream(folder_ / "tokenizer.json") << root;
    return folder_ / "tokenizer.json";
  }
  test::TempFolder folder_;
};

TEST_F(Tokenizer, GivesEachTokensBytes) {
  const Detokenizer detokenizer(write([](json&) {}));
  EXPECT_EQ(detokenizer.piece(0).kind, Detokenizer::Kind::none) << "special";
  EXPECT_EQ(detokenizer.piece(1).bytes, "a b") << "no character of the alphabet: as it is";
  EXPECT_EQ(detokenizer.piece(2).bytes, " \xe9") << "é stands for the byte e9";
  EXPECT_EQ(detokenizer.piece(3).bytes, "\xc3");
  for (const int32_t none : {-1, 5, 7, INT32_MAX})
    EXPECT_EQ(detokenizer.piece(none).kind, Detokenizer::Kind::none) << none;
  EXPECT_EQ(text_of(detokenizer, {6, 3, 0, 4, 6, 3, 6, 3}), "xéx\xef\xbf\xbdx")
      << "a special token does not part a character, and the last is not finished";
}

TEST_F(Tokenizer, TakesBackARunOfBytesThatIsNoText) {
  const Detokenizer detokenizer(golden("byte_fallback.json"));
  const auto byte = [](int value) { return 3 + value; };
  const std::string no_text = "\xef\xbf\xbd";
  const int32_t the = 269;
  EXPECT_EQ(text_of(detokenizer, {the, byte('\n'), byte('\n')}), "the\n\n");
  EXPECT_EQ(text_of(detokenizer, {the, byte('\n'), byte(0xc3)}), "the\n") << "may still be text";
  EXPECT_EQ(text_of(detokenizer, {the, byte('\n'), byte(0xc3), the}),
            "the" + no_text + no_text + "the");
  EXPECT_EQ(text_of(detokenizer, {the, byte('\n'), byte(0xff), byte('a')}),
            "the" + no_text + no_text + no_text);
  EXPECT_EQ(text_of(detokenizer, {byte(' '), byte(' '), the}), " the") << "one blank is stripped";
  EXPECT_EQ(text_of(detokenizer, {byte(' '), byte(0xff), the}), no_text + no_text + "the");
}

TEST_F(Tokenizer, IsRefusedByNameWhereItIsNotKnown) {
  const auto refused = [&](const auto& change, const std::vector<std::string>& parts) {
    const auto path = write(change);
    std::vector<std::string> all = parts;
    all.insert(all.end(), {path.string(), "stop_token_ids"});
    test::expect_error<Unsupported>([&] { Detokenizer{path}; }, all);
  };
  const json replace = {{"type", "Replace"}, {"pattern", {{"String", "_"}}}, {"content", " "}};
  const json fuse = {{"type", "Fuse"}};
  const json strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
  const auto sequence = [](json& root, const json& decoders) {
    root["decoder"] = {{"type", "Sequence"}, {"decoders", decoders}};
  };
  refused([](json& root) { root["model"]["type"] = "Unigram"; }, {"model type 'Unigram'"});
  refused([](json& root) { root["decoder"]["type"] = "WordPiece"; }, {"decoder 'WordPiece'"});
  refused([](json& root) { root["decoder"] = nullptr; }, {"no decoder"});
  refused([&](json& root) { sequence(root, json::array({strip})); }, {"Strip before Fuse"});
  refused(
      [&](json& root) {
        sequence(root, json::array({fuse, replace}));
      },
      {"Replace after Fuse"});
  refused(
      [&](json& root) {
        sequence(root, json::array({replace, {{"type", "ByteLevel"}}}));
      },
      {"ByteLevel after others"});
  refused(
      [&](json& root) {
        json regex = replace;
        regex["pattern"] = {{"Regex", "_+"}};
        sequence(root, json::array({regex}));
      },
      {"regular expression"});
  refused(
      [&](json& root) {
        json ends = strip;
        ends["stop"] = 1;
        sequence(root, json::array({fuse, ends}));
      },
      {"at the end of the text"});
}

/// Decoders that make more of a token than memory holds are refused, and at once.
TEST_F(Tokenizer, IsRefusedWhereItsTextsGrowWithoutBound) {
  const auto replace = [](const std::string& to) {
    return json{{"type", "Replace"}, {"pattern", {{"String", "x"}}}, {"content", to}};
  };
  const auto in_sequence = [&](size_t count, const std::string& to) {
    return [decoders = json(json::array_t(count, replace(to)))](json& root) {
      root["decoder"] = {{"type", "Sequence"}, {"decoders", decoders}};
    };
  };
  const auto load = [](const std::filesystem::path& path) { return Detokenizer(path); };
  const auto refuses = [&](const std::string& what, const auto& change) {
    const auto path = write(change);
    test::expect_error<InputError>([&] { load(path); }, {"tokenizer.json: " + what});
  };
  refuses("the text of token 6 has more than 4096 bytes", in_sequence(40, "xx"));  // 2^40 bytes
  refuses("the text of token 6 has more than 4096 bytes", in_sequence(1, std::string(5000, 'y')));
  refuses("it has more than 64 decoders", in_sequence(65, "x"));
  refuses("the text of token 1 has more than 4096 bytes",
          [](json& root) { root["added_tokens"][1]["content"] = std::string(5000, 'y'); });
  refuses("the texts of its tokens have more than 67108864 bytes", [&](json& root) {
    in_sequence(1, std::string(4000, 'y'))(root);
    for (int id = 0; id < 17000; ++id) root["model"]["vocab"]["x" + std::to_string(id)] = id;
  });
  EXPECT_EQ(load(write(in_sequence(12, "xx"))).piece(6).bytes.size(), 4096u);
  EXPECT_EQ(load(write(in_sequence(64, "x"))).piece(6).bytes, "x");
}

TEST_F(Tokenizer, IsRefusedWhereItIsDamaged) {
  const auto refused = [&](const auto& change, const std::string& part) {
    const auto path = write(change);
    test::expect_error<InputError>([&] { Detokenizer{path}; }, {path.string(), part});
  };
  refused([](json& root) { root = json::array(); }, "no object");
  refused([](json& root) { root.erase("model"); }, "no 'model'");
  refused([](json& root) { root["model"].erase("vocab"); }, "no 'vocab'");
  refused([](json& root) { root["model"]["vocab"] = json::array(); }, "model.vocab is no object");
  refused([](json& root) { root["model"]["vocab"]["x"] = -6; }, "-6 is no token id");
  refused([](json& root) { root["model"]["vocab"]["x"] = 1ll << 40; }, "1099511627776 is no token");
  refused([](json& root) { root["added_tokens"][0]["content"] = 5; }, "'content' is no text");
  refused([](json& root) { root["added_tokens"][0].erase("id"); }, "no 'id'");
  refused([](json& root) { root["decoder"] = "ByteLevel"; }, "no 'type'");
  std::ofstream(folder_ / "tokenizer.json") << "{\"model\"";
  test::expect_error<InputError>([&] { Detokenizer{folder_ / "tokenizer.json"}; },
                                 {"tokenizer.json", "cannot be read"});
  test::expect_error<InputError>([&] { Detokenizer{folder_ / "none.json"}; }, {"none.json"});
}

}  // namespace
}  // namespace pecia::io
