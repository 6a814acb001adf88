// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What turns produce besides text, as prompt shards and results have it.

#include <cstdint>
#include <string_view>

namespace pecia::io {

/// What a turn is to produce, with the numbers of /produce in prompt shards.
enum class Produce : uint8_t {
  text = 0,    ///< tokens of an answer
  vector = 1,  ///< means of the final normed hidden states of spans of its tokens
  score = 2,   ///< log-probabilities of given continuations, or of the prompt itself
  rerank = 3   ///< probabilities of given tokens among each other
};
inline constexpr int num_produce_kinds = 4;

constexpr std::string_view name_of(Produce produce) {
  switch (produce) {
    case Produce::text:
      return "text";
    case Produce::vector:
      return "vector";
    case Produce::score:
      return "score";
    case Produce::rerank:
      return "rerank";
  }
  return "?";
}

/// Whether log-probabilities of tokens are weighed.
constexpr bool scores(Produce produce) {
  return produce == Produce::score || produce == Produce::rerank;
}

/// Of the numbers of vectors in the results.
enum class VectorType : uint8_t { fp32, fp16 };

/// Tokens [begin, end) of a turn.
struct TokenSpan {
  int64_t begin = 0, end = 0;

  bool operator==(const TokenSpan&) const = default;
};

}  // namespace pecia::io
