// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/shared/kept_arrays.hpp"

#include <cstring>

namespace pecia::kernels::cuda {

const void* KeptArrays::keep_bytes(std::span<const std::byte> bytes, device::Stream& stream) {
  if (bytes.empty()) return nullptr;
  const auto size = static_cast<int64_t>(bytes.size());
  for (const Kept& kept : kept_)
    if (kept.there.bytes() == size &&
        std::memcmp(kept.pinned.data(), bytes.data(), bytes.size()) == 0)
      return kept.there.data();
  const Kept& kept = kept_.emplace_back(
      Kept{{device_, device::Memory::pinned, size}, {device_, device::Memory::device, size}});
  std::memcpy(kept.pinned.data(), bytes.data(), bytes.size());
  device_.copy(kept.there.data(), kept.pinned.data(), size, stream);
  return kept.there.data();
}

}  // namespace pecia::kernels::cuda
