// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The host's memory, aligned to cache lines, large blocks to huge pages.

#include <cstddef>
#include <cstdint>

namespace pecia::device {

/// `bytes` > 0, not initialised. SystemError when there is not enough.
std::byte* allocate_host(int64_t bytes);
void free_host(std::byte* data) noexcept;

}  // namespace pecia::device
