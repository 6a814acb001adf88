// SPDX-License-Identifier: Apache-2.0
#include "lib/simulation/tune/retrieval.hpp"

#include <algorithm>

#include "lib/base/core/error.hpp"

namespace pecia::tune {

int64_t passage_begin(size_t index, int64_t tokens) {
  constexpr int64_t depths = 3;
  return tokens * (1 + 2 * (static_cast<int64_t>(index) % depths)) / 8;
}

std::vector<int32_t> with_passage_again(size_t index, std::vector<int32_t> text) {
  const auto tokens = std::ssize(text);
  PECIA_CHECK(tokens >= least_retrieval_tokens, "a text of {} tokens", tokens);
  std::copy_n(text.begin() + passage_begin(index, tokens), passage_tokens,
              text.end() - passage_tokens);
  return text;
}

double retrieved(std::span<const int32_t> text, std::span<const int32_t> expected) {
  PECIA_CHECK(std::ssize(text) >= judged_tokens && text.size() == expected.size(),
              "{} expected tokens of {}", expected.size(), text.size());
  int64_t found = 0;
  for (size_t i = text.size() - judged_tokens; i < text.size(); ++i)
    found += text[i] == expected[i] ? 1 : 0;
  return static_cast<double>(found) / judged_tokens;
}

}  // namespace pecia::tune
