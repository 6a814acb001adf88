// SPDX-License-Identifier: Apache-2.0
#include "lib/base/device/phantom_addresses.hpp"

#include <sys/mman.h>

#include <iterator>
#include <mutex>
#include <utility>

#include "lib/base/core/error.hpp"

namespace pecia::device {
namespace {

constexpr int64_t piece_bytes = int64_t{1} << 36;
constexpr int64_t page_bytes = 4096;

int64_t whole_pages(int64_t bytes) {
  return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

std::byte* from_system(int64_t bytes) {
  void* const data =
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) fail<SystemError>("no room for {} bytes of addresses", bytes);
  return static_cast<std::byte*>(data);
}

/// Pieces that nobody has, of all threads.
struct FreePieces {
  std::mutex mutex;
  std::vector<std::byte*> pieces;
};

FreePieces& free_pieces() {
  static FreePieces free;
  return free;
}

std::byte* take_piece() {
  FreePieces& free = free_pieces();
  const std::scoped_lock lock(free.mutex);
  if (free.pieces.empty()) return from_system(piece_bytes);
  std::byte* const piece = free.pieces.back();
  free.pieces.pop_back();
  return piece;
}

}  // namespace

PhantomAddresses::~PhantomAddresses() {
  for (const auto& [data, bytes] : long_) ::munmap(data, bytes);
  FreePieces& free = free_pieces();
  const std::scoped_lock lock(free.mutex);
  free.pieces.insert(free.pieces.end(), pieces_.begin(), pieces_.end());
}

std::byte* PhantomAddresses::take(int64_t bytes) {
  const int64_t needed = whole_pages(bytes);
  if (needed > piece_bytes) {
    std::byte* const data = from_system(needed);
    long_[data] = needed;
    return data;
  }
  for (auto at = free_.begin(); at != free_.end(); ++at) {
    const auto [data, there] = *at;
    if (there < needed) continue;
    free_.erase(at);
    if (there > needed) free_[data + needed] = there - needed;
    return data;
  }
  pieces_.push_back(take_piece());
  if (needed < piece_bytes) free_[pieces_.back() + needed] = piece_bytes - needed;
  return pieces_.back();
}

void PhantomAddresses::give(std::byte* data, int64_t bytes) {
  if (long_.erase(data) > 0) {
    ::munmap(data, whole_pages(bytes));
    return;
  }
  auto own = free_.emplace(data, whole_pages(bytes)).first;
  if (const auto after = std::next(own);
      after != free_.end() && own->first + own->second == after->first) {
    own->second += after->second;
    free_.erase(after);
  }
  if (own == free_.begin()) return;
  if (const auto before = std::prev(own); before->first + before->second == own->first) {
    before->second += own->second;
    free_.erase(own);
  }
}

}  // namespace pecia::device
