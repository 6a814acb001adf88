// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the steps of elastic sequence parallelism know of a request.

#include <cstdint>
#include <vector>

#include "lib/core/error.hpp"

namespace pecia::schedule {

struct ElasticRequest {
  int64_t prompt_tokens = 0;  ///< to read, after the cached ones
  int64_t cached_tokens = 0;  ///< these have their slots already
  int64_t answer_tokens = 0;  ///< that it may generate, at most

  /// KV slots that it needs from now until its answer has ended.
  int64_t slots() const { return prompt_tokens + answer_tokens; }
  /// Pairs of a token to read and a token that it attends to.
  double pairs() const {
    const auto tokens = static_cast<double>(prompt_tokens);
    return tokens * (static_cast<double>(cached_tokens) + 0.5 * (tokens + 1));
  }
};

/// Throws InvalidArgument if a number is negative, or a request has no token to read.
inline void check_requests(const std::vector<ElasticRequest>& requests) {
  for (const ElasticRequest& request : requests)
    PECIA_CHECK(
        request.prompt_tokens >= 1 && request.cached_tokens >= 0 && request.answer_tokens >= 0,
        "a request with {} tokens to read, {} cached, {} to generate", request.prompt_tokens,
        request.cached_tokens, request.answer_tokens);
}

}  // namespace pecia::schedule
