// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How far back the rows of a layer see. This is the one rule: masks, halos, what a cache keeps, and
/// the work that is foreseen all follow from `first_seen`.

#include <compare>
#include <cstdint>
#include <limits>

namespace pecia::kernels {

/// The row at position p sees the keys at first_seen(p) … p.
///
///     none        0 … p
///     sliding w   p − w + 1 … p
///     chunked c   ⌊p/c⌋ · c … p: the first row of a chunk sees itself alone
///
/// No row sees more than `tokens` keys, and no later row sees an earlier key than the row before it.
struct Window {
  enum class Kind : uint8_t { sliding, chunked };

  int64_t tokens = 0;  ///< 0: none
  Kind kind = Kind::sliding;

  constexpr Window() = default;
  /// A number is a sliding window.
  constexpr Window(int64_t sliding) : tokens(sliding) {}  // NOLINT(google-explicit-constructor)
  static constexpr Window chunks_of(int64_t tokens) {
    Window window(tokens);
    window.kind = Kind::chunked;
    return window;
  }

  constexpr explicit operator bool() const { return tokens > 0; }
  constexpr bool chunked() const { return tokens > 0 && kind == Kind::chunked; }

  /// May be below 0.
  constexpr int64_t first_seen(int64_t position) const {
    if (tokens == 0) return std::numeric_limits<int64_t>::min();
    return kind == Kind::sliding ? position - tokens + 1 : position - position % tokens;
  }
  /// The first position after a key whose row no longer sees it.
  constexpr int64_t end_of_sight(int64_t key) const {
    if (tokens == 0) return std::numeric_limits<int64_t>::max();
    return kind == Kind::sliding ? key + tokens : key - key % tokens + tokens;
  }
  /// How many positions a row sees up to its own.
  constexpr int64_t reach(int64_t position) const {
    return tokens == 0 ? std::numeric_limits<int64_t>::max() : position - first_seen(position) + 1;
  }
  constexpr bool sees(int64_t query, int64_t key) const {
    return key <= query && key >= first_seen(query);
  }

  auto operator<=>(const Window&) const = default;
};

}  // namespace pecia::kernels
