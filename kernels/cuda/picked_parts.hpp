// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <vector>

#include "kernels/api/merge_picked.hpp"
#include "kernels/cuda/shared/staged_parts.hpp"

namespace pecia::kernels::cuda {

/// PickedParts in the device's memory.
struct PickedPartsThere {
  const void* out;
  const float* lse;
  const int32_t* rows;
  int64_t parts, heads, first_head;
};

/// Calls launch(parts on the device, their number, the most heads of one of them) for parts that
/// have any rows, as many at a time as a grid has rows of blocks.
template <typename Launch>
void with_picked_parts(std::span<const PickedParts> parts, Context& context, device::Stream& stream,
                       const Launch& launch) {
  std::vector<PickedPartsThere> all;
  int64_t most = 0;
  for (const PickedParts& of : parts) {
    if (of.lse.elements() == 0) continue;
    all.push_back({of.out.data(), of.lse.as<const float>(), of.rows.as<const int32_t>(),
                   of.lse.rows(), of.lse.size(1), of.first_head});
    most = std::max(most, of.lse.elements());
  }
  with_staged(all, context, stream,
              [&](const PickedPartsThere* there, int64_t count) { launch(there, count, most); });
}

}  // namespace pecia::kernels::cuda
