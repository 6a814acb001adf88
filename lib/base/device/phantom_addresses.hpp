// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Addresses that no page belongs to. The system is asked for them in large pieces, and these go from
/// one owner to the next, since a call of the system for each block takes longer than what a phantom
/// does with it.

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace pecia::device {

class PhantomAddresses {
 public:
  PhantomAddresses() = default;
  ~PhantomAddresses();
  PhantomAddresses(const PhantomAddresses&) = delete;
  PhantomAddresses& operator=(const PhantomAddresses&) = delete;

  /// Addresses for `bytes` > 0, a multiple of 4096 from the next block's. A read or a write there ends
  /// the program with SIGSEGV. Throws SystemError where the system has no more.
  std::byte* take(int64_t bytes);
  /// Gives back a block that was taken with this number of bytes.
  void give(std::byte* data, int64_t bytes);

 private:
  std::vector<std::byte*> pieces_;      ///< of piece_bytes each
  std::map<std::byte*, int64_t> free_;  ///< bytes by address; neighbours are joined
  std::map<std::byte*, int64_t> long_;  ///< blocks longer than a piece, of the system itself
};

}  // namespace pecia::device
