// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Host memory aligned to cache lines. Large blocks are aligned to huge pages.

#include <cstddef>
#include <cstdint>

namespace pecia::device {

/// Returns `bytes` > 0 bytes of uninitialised memory. Throws SystemError when there is not enough.
std::byte* allocate_host(int64_t bytes);
void free_host(std::byte* data) noexcept;

}  // namespace pecia::device
