// SPDX-License-Identifier: Apache-2.0
#include "lib/base/device/host_memory.hpp"

#include <sys/mman.h>

#include <cstdlib>

#include "lib/base/core/error.hpp"

namespace pecia::device {
namespace {
constexpr int64_t line_bytes = 64;
constexpr int64_t huge_page_bytes = 2 << 20;
}  // namespace

std::byte* allocate_host(int64_t bytes) {
  const int64_t alignment = bytes >= 2 * huge_page_bytes ? huge_page_bytes : line_bytes;
  const int64_t rounded = (bytes + alignment - 1) / alignment * alignment;
  auto* const data = static_cast<std::byte*>(std::aligned_alloc(alignment, rounded));
  if (data == nullptr) fail<SystemError>("out of memory: {} bytes could not be allocated", bytes);
  // This is only advice: without transparent huge pages it changes nothing.
  if (alignment == huge_page_bytes) ::madvise(data, rounded, MADV_HUGEPAGE);
  return data;
}

void free_host(std::byte* data) noexcept {
  std::free(data);
}

}  // namespace pecia::device
