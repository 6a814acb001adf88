// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/host_tokens.hpp"

namespace pecia::attention {

HostTokens::HostTokens(const Compute& compute, const KvShape& shape, int64_t tokens)
    : vector_bytes(shape.head_dim * size_of(shape.dtype)),
      vectors(compute.device, device::Memory::pinned, tokens * vector_bytes),
      scales(compute.device, device::Memory::pinned,
             shape.dtype == DType::fp8 ? tokens * size_of(DType::fp32) : 0) {}

void copy_tokens(CopyDirection direction, const KvCache::Stored& cache, int64_t head,
                 const HostTokens& host, const std::vector<parallel::SlotRange>& slots,
                 const Compute& compute) {
  const auto move = [&](std::byte* cached, std::byte* own, int64_t bytes) {
    if (direction == CopyDirection::to_cache)
      compute.device.copy(cached, own, bytes, compute.stream);
    else
      compute.device.copy(own, cached, bytes, compute.stream);
  };
  auto* const vectors = static_cast<std::byte*>(cache.vectors.row(head));
  int64_t first = 0;  // token of the host
  for (const parallel::SlotRange& range : slots) {
    const int64_t count = range.size();
    move(vectors + range.begin * host.vector_bytes,
         host.vectors.as<std::byte>() + first * host.vector_bytes, count * host.vector_bytes);
    if (cache.scales) {
      constexpr int64_t scale_bytes = size_of(DType::fp32);
      move(static_cast<std::byte*>(cache.scales.row(head)) + range.begin * scale_bytes,
           host.scales.as<std::byte>() + first * scale_bytes, count * scale_bytes);
    }
    first += count;
  }
  compute.stream.synchronize();
}

}  // namespace pecia::attention
