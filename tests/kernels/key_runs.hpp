// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>
#include <vector>

#include "kernels/api/attention.hpp"

namespace pecia::test {

/// Adds the runs of keys that lie one after the other from key `first` of a cache on, at any
/// positions: cut where these do not go up in equal steps.
inline void add_runs(std::vector<kernels::KeyRun>& runs, std::span<const int64_t> positions,
                     int64_t first, int64_t head_dim, int64_t head_stride) {
  const auto count = static_cast<int64_t>(positions.size());
  for (int64_t begin = 0, end = 0; begin < count; begin = end) {
    end = begin + 1;
    int64_t stride = 1;
    if (end < count && positions[end] > positions[begin]) {
      stride = positions[end] - positions[begin];
      while (end < count && positions[end] == positions[end - 1] + stride) ++end;
    }
    runs.push_back(
        {(first + begin) * head_dim, head_stride, end - begin, positions[begin], stride});
  }
}

}  // namespace pecia::test
