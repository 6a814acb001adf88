// SPDX-License-Identifier: Apache-2.0
#pragma once
/// SHA-256 as in FIPS 180-4.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace pecia::io {

/// Takes bytes in pieces of any size; `hex` finishes the digest.
class Sha256 {
 public:
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text))); }

  /// The digest of all bytes, 64 lower-case hexadecimal digits. No bytes may be added afterwards.
  std::string hex();

 private:
  static constexpr size_t block_bytes = 64;

  void add_block(const std::byte* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, block_bytes> block_{};  ///< the last num_bytes_ % 64 bytes
  uint64_t num_bytes_ = 0;
};

}  // namespace pecia::io
