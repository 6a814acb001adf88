// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <vector>

#include "kernels/api/merge_picked.hpp"
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/shared/launch.cuh"

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
  const auto count = static_cast<int64_t>(all.size());
  for (int64_t first = 0; first < count; first += max_grid_y) {
    const std::span<const PickedPartsThere> part =
        std::span(all).subspan(first, std::min(max_grid_y, count - first));
    context.staging.begin(Staging::bytes_of(part), stream);
    const PickedPartsThere* const there = context.staging.add(part);
    context.staging.send(stream);
    launch(there, static_cast<int64_t>(part.size()), most);
  }
}

}  // namespace pecia::kernels::cuda
