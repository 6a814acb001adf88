// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <span>
#include <vector>

#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/shared/launch.cuh"

namespace pecia::kernels::cuda {

/// Calls launch(parts in the device's memory, their number) for all parts, as many at a time as a grid
/// has blocks in y.
template <typename Part, typename Launch>
void with_staged(const std::vector<Part>& all, Context& context, device::Stream& stream,
                 const Launch& launch) {
  const auto count = static_cast<int64_t>(all.size());
  for (int64_t first = 0; first < count; first += max_grid_y) {
    const std::span<const Part> part =
        std::span(all).subspan(first, std::min(max_grid_y, count - first));
    context.staging.begin(Staging::bytes_of(part), stream);
    const Part* const there = context.staging.add(part);
    context.staging.send(stream);
    launch(there, static_cast<int64_t>(part.size()));
  }
}

}  // namespace pecia::kernels::cuda
