// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Finds where the last tokens of a text stood before, and what came after them there.
///
///     text 7 1 2 3 9 8 1 2 3 4 8 1 2 3    its end 8 1 2 3 stood before, and 4 8 1 2 3 came next
///
/// The text grows by any number of tokens at a time. Each place knows the place before it that has the
/// same two last tokens, so a search follows a chain of places. Source: the hash chains of LZ77.

#include <cstddef>
#include <span>

#include "lib/engine/drafts/draft.hpp"

namespace pecia::drafts {

class SuffixIndex {
 public:
  static constexpr int64_t least_match = 2;   ///< a single token says too little
  static constexpr int64_t most_match = 64;   ///< a longer match counts as this long
  static constexpr int64_t most_places = 64;  ///< that a search looks at, the latest first
  /// Never equal to a token of an end: neither a match nor a continuation goes beyond it.
  static constexpr int32_t end_of_text = -1;
  static constexpr int64_t bytes_per_token = 32;  ///< bound of `bytes`, beside half a KiB

  void add(std::span<const int32_t> tokens);
  void add(int32_t token);

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  std::span<const int32_t> tokens() const { return tokens_; }
  /// The last tokens of the text, as many as a search reads.
  std::span<const int32_t> end() const;

  /// Up to `most` tokens that came after `end` in this text. Of the places where the longest part of
  /// the end stood, most agree on the first token; of these most agree on the second, and so on. Where
  /// as many disagree, the latest place decides. Empty where the last two tokens did not stand in the
  /// text with a token after them.
  Draft continuation(std::span<const int32_t> end, int64_t most) const;

  /// Memory beside the object itself.
  int64_t bytes() const;

 private:
  using Place = int32_t;  ///< of the second of two tokens
  static constexpr Place none = -1;

  size_t slot_of(int32_t first, int32_t second) const;
  void widen();
  int64_t match_at(Place place, std::span<const int32_t> end) const;
  int32_t token_after(Place place, int64_t ahead) const;

  std::vector<int32_t> tokens_;
  std::vector<Place> before_;  ///< by place: the one before it with the same two tokens
  /// The latest place of each two tokens, hashed by these, a power of two of slots; none: free.
  std::vector<Place> latest_ = std::vector<Place>(16, none);
  size_t pairs_ = 0;  ///< slots that are taken
};

}  // namespace pecia::drafts
