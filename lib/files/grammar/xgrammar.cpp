// SPDX-License-Identifier: Apache-2.0
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <bit>
#include <map>
#include <nlohmann/json.hpp>

#include "lib/base/core/error.hpp"
#include "lib/base/core/json.hpp"
#include "lib/files/grammar/grammars.hpp"

namespace pecia::grammar {
namespace {

using Json = nlohmann::ordered_json;

class XMatcher : public Matcher {
 public:
  XMatcher(const xgrammar::CompiledGrammar& grammar, int64_t vocab)
      : matcher_(grammar), vocab_(vocab) {}

  bool accept(int32_t token) override {
    return !matcher_.IsTerminated() && matcher_.AcceptToken(token);
  }

  void take_back(int64_t tokens) override { matcher_.Rollback(static_cast<int>(tokens)); }

  int64_t allow(std::span<uint32_t> words) override {
    int64_t count = words_of(vocab_);
    PECIA_CHECK(std::ssize(words) == count, "{} words for {} tokens", words.size(), vocab_);
    if (matcher_.IsTerminated()) {
      std::ranges::fill(words, 0);
      return 0;
    }
    std::ranges::fill(words, ~uint32_t{0});  // a matcher that allows all tokens may write nothing
    DLTensor mask{words.data(), {kDLCPU, 0}, 1, xgrammar::GetBitmaskDLType(), &count, nullptr, 0};
    matcher_.FillNextTokenBitmask(&mask);
    if (vocab_ % 32 != 0) words.back() &= (uint32_t{1} << vocab_ % 32) - 1;
    int64_t allowed = 0;
    for (const uint32_t word : words) allowed += std::popcount(word);
    return allowed;
  }

  bool is_complete() const override { return matcher_.IsTerminated() || matcher_.IsCompleted(); }

 private:
  xgrammar::GrammarMatcher matcher_;
  int64_t vocab_;
};

/// A text as a JSON string, which is also how EBNF writes it.
std::string quoted(const Json& text) {
  return json_text(text);
}

class XGrammars : public Grammars {
 public:
  XGrammars(const io::Detokenizer& detokenizer, int64_t vocab,
            const std::vector<int32_t>& stop_token_ids, int threads)
      : vocab_(vocab), compiler_(tokenizer(detokenizer, vocab, stop_token_ids), threads) {}

  std::unique_ptr<Matcher> matcher(const std::string& shape) override {
    auto compiled = compiled_.find(shape);
    if (compiled == compiled_.end()) compiled = compiled_.emplace(shape, compile(shape)).first;
    return std::make_unique<XMatcher>(compiled->second, vocab_);
  }

 private:
  static xgrammar::TokenizerInfo tokenizer(const io::Detokenizer& detokenizer, int64_t vocab,
                                           const std::vector<int32_t>& stop_token_ids) {
    std::vector<std::string> texts(vocab);  // XGrammar never allows a token without text
    for (int32_t token = 0; token < vocab; ++token) texts[token] = detokenizer.piece(token).bytes;
    return xgrammar::TokenizerInfo(texts, xgrammar::VocabType::RAW, static_cast<int>(vocab),
                                   stop_token_ids);
  }

  /// JSON has no blanks beyond those that json.dumps writes, so that no answer is lost in blanks.
  xgrammar::CompiledGrammar compile(const std::string& shape) {
    const auto json = parse_json<Json>(shape);
    try {
      if (json.contains("schema"))
        return compiler_.CompileJSONSchema(json_text(json["schema"]), /*any_whitespace=*/false);
      if (json.contains("regex")) return compiler_.CompileRegex(json["regex"].get<std::string>());
      std::string ebnf;
      for (const Json& text : json.at("choice"))
        ebnf += (ebnf.empty() ? "root ::= " : " | ") + quoted(text);
      return compiler_.CompileGrammar(ebnf);
    } catch (const std::exception& error) {
      fail<InputError>("no grammar can be made of {:.200}: {}", shape, error.what());
    }
  }

  int64_t vocab_;
  xgrammar::GrammarCompiler compiler_;
  std::map<std::string, xgrammar::CompiledGrammar> compiled_;
};

}  // namespace

std::string_view why_none() {
  return "";
}

std::unique_ptr<Grammars> make_grammars(const io::Detokenizer& detokenizer, int64_t vocab,
                                        const std::vector<int32_t>& stop_token_ids, int threads) {
  return std::make_unique<XGrammars>(detokenizer, vocab, stop_token_ids, threads);
}

}  // namespace pecia::grammar
