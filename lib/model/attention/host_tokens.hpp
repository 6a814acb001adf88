// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Keys or values of one head in the host's memory, on their way between a cache and files or other
/// memory.

#include <cstddef>
#include <span>
#include <vector>

#include "lib/base/device/buffer.hpp"
#include "lib/model/attention/compute.hpp"
#include "lib/model/attention/kv_cache.hpp"

namespace pecia::attention {

/// One token after another. In fp8 they have their scales.
struct HostTokens {
  HostTokens(const Compute& compute, const KvShape& shape, int64_t tokens);

  std::span<std::byte> vector_span(int64_t tokens) const {
    return {vectors.as<std::byte>(), static_cast<size_t>(tokens * vector_bytes)};
  }
  std::span<float> scale_span(int64_t tokens) const {
    return {scales.as<float>(), static_cast<size_t>(scales.bytes() > 0 ? tokens : 0)};
  }

  int64_t vector_bytes;
  device::Buffer vectors, scales;
};

enum class CopyDirection { to_cache, from_cache };

/// Copies between tokens [0, slots) of the host and these slots of one head of the cache. Waits for
/// the copy.
void copy_tokens(CopyDirection direction, const KvCache::Stored& cache, int64_t head,
                 const HostTokens& host, const std::vector<parallel::SlotRange>& slots,
                 const Compute& compute);

}  // namespace pecia::attention
