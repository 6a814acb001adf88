// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What ranks share for sums in one shot, as values.

#include <cstddef>
#include <cstdint>

#include "lib/ranks/comm/one_shot.hpp"

namespace pecia::comm {

/// Few, since they wait for other ranks and take room meanwhile. Each chunk of 16 bytes has a thread in
/// sums of up to 128 KiB.
inline constexpr int one_shot_blocks = 16, one_shot_threads = 512;

/// What each rank gives to the others: what it has been told, [one_shot_blocks, most_one_shot_ranks]
/// numbers of calls, then two buffers.
inline constexpr int64_t one_shot_told_bytes =
    int64_t{one_shot_blocks} * most_one_shot_ranks * sizeof(uint32_t);
constexpr int64_t one_shot_bytes(int64_t buffer_bytes) {
  return one_shot_told_bytes + 2 * buffer_bytes;
}

/// What the kernel gets, by rank where there is an array.
struct OneShotParams {
  std::byte* buffers[most_one_shot_ranks];  ///< two of buffer_bytes each
  uint32_t* told[most_one_shot_ranks];      ///< calls of which it was told
  uint32_t* own_calls;                      ///< [one_shot_blocks] in this device's memory
  const uint32_t* aborted;                  ///< in the host's memory
  int64_t buffer_bytes;                     ///< a multiple of 16
  int ranks, rank;
  void* values;
  int64_t count;
};

}  // namespace pecia::comm
