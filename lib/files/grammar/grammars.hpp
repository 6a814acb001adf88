// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Which tokens may come next in an answer that must have a certain shape: JSON of a schema, text of
/// a regular expression, or one of several texts. XGrammar does the work; a build without it
/// (scripts/setup.sh grammar) throws Unsupported.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/files/text/detokenizer.hpp"

namespace pecia::grammar {

/// Why this build has no grammars; "" if it has them.
std::string_view why_none();

/// The text by which a shape is known. It is JSON: {"schema": …}, {"regex": "…"}, {"choice": […]}.
std::string shape_of_schema(std::string_view json_schema);
std::string shape_of_regex(const std::string& regex);
std::string shape_of_choice(const std::vector<std::string>& texts);

/// Words that hold a bit for each token.
constexpr int64_t words_of(int64_t vocab) {
  return (vocab + 31) / 32;
}

/// Where one answer is in its shape.
class Matcher {
 public:
  virtual ~Matcher() = default;

  /// Takes in the answer's next token. Returns false if it does not fit; then nothing changes.
  virtual bool accept(int32_t token) = 0;
  /// Takes the last `tokens` that were accepted back.
  virtual void take_back(int64_t tokens) = 0;
  /// Sets bit t % 32 of words[t / 32] for each token t that may come next, and clears all others.
  /// Stop tokens may come where the answer is complete. Returns how many tokens may come.
  virtual int64_t allow(std::span<uint32_t> words) = 0;
  /// Whether the answer may end here.
  virtual bool is_complete() const = 0;
};

/// The grammars of a tokenizer. Each shape is compiled once.
class Grammars {
 public:
  virtual ~Grammars() = default;

  /// The beginning of an answer of this shape. Throws InputError with the reason if the shape has an
  /// error, or if XGrammar does not know a keyword of it.
  virtual std::unique_ptr<Matcher> matcher(const std::string& shape) = 0;
};

/// `vocab`: logits of a row. Tokens that add nothing to a text are never allowed, except stop tokens.
/// `threads` compile.
std::unique_ptr<Grammars> make_grammars(const io::Detokenizer& detokenizer, int64_t vocab,
                                        const std::vector<int32_t>& stop_token_ids, int threads);

}  // namespace pecia::grammar
