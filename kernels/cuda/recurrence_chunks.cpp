// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/recurrence_chunks.hpp"

#include <algorithm>

#include "lib/base/core/error.hpp"

namespace pecia::kernels::cuda {

ChunkPlan plan_chunks(std::span<const StateRows> items, int64_t most_chunks) {
  PECIA_CHECK(most_chunks >= 1, "bands of {} chunks", most_chunks);
  ChunkPlan plan;
  for (const StateRows& item : items) {
    for (int64_t done = 0; done < item.num_rows; done += chunk_rows) {
      const auto number = static_cast<int64_t>(plan.chunks.size());
      const bool begins = plan.bands.empty() || plan.bands.back().num_chunks == most_chunks;
      if (begins) plan.bands.push_back({number, 0, static_cast<int64_t>(plan.spans.size()), 0});
      ChunkBand& band = plan.bands.back();
      if (done == 0 || begins) {
        plan.spans.push_back({item.state, number, 0});
        ++band.num_spans;
      }
      plan.chunks.push_back(
          {item.first_row + done, std::min<int64_t>(chunk_rows, item.num_rows - done)});
      ++plan.spans.back().num_chunks;
      ++band.num_chunks;
    }
  }
  return plan;
}

}  // namespace pecia::kernels::cuda
