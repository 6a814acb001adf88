// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Random damage to a file's bytes, a pure function of the seed.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace pecia::test {

/// What a kind of file is damaged with besides random bytes.
struct Damage {
  std::span<const std::string_view> words;  ///< put in place of, or between, what is there
  bool numbers = false;  ///< words of 8 bytes, among them offsets within the file
};

/// A few flipped, replaced, removed, repeated or moved parts of `content`, at times the file cut
/// off.
std::string damaged(const std::string& content, const Damage& damage, uint64_t seed);

}  // namespace pecia::test
