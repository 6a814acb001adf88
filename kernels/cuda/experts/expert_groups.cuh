// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Rows grouped by the experts that they chose. A pair is a row and one of its k experts; pair p is of
/// row p / k.

#include "kernels/cuda/shared/warp.cuh"

namespace pecia::kernels::cuda {

/// Pairs [begin, end) of the order, which all chose one expert. Below 0 it is no expert.
struct alignas(16) ExpertGroup {
  int32_t expert, begin, end;
};

/// How many groups of at most `rows` pairs there may be.
inline int64_t most_groups(int64_t pairs, int64_t experts, int64_t rows) {
  return (pairs < experts ? pairs : experts) + pairs / rows;
}

/// Puts pairs into `order`, those of each expert after those of the one before, and cuts each
/// expert's into groups of at most `rows`. The rest of `num_groups` groups have no expert. Experts
/// that are here are `count` from number `first` on; pairs of others are left out. `places` gets where
/// each pair stands in `order`, or −1. One block of whole warps. Shared memory: `count` int32.
static __global__ void group_pairs_kernel(const int32_t* chosen, int64_t pairs, int64_t first,
                                          int64_t count, int32_t rows, ExpertGroup* groups,
                                          int64_t num_groups, int32_t* order, int32_t* places) {
  __shared__ int32_t used;
  auto* const counts = reinterpret_cast<int32_t*>(dynamic_shared());
  const auto place = [&](int64_t pair) {
    const int64_t expert = chosen[pair] - first;
    return expert >= 0 && expert < count ? expert : -1;
  };
  wait_for_earlier_kernels();
  let_next_kernel_begin();
  for (int64_t e = threadIdx.x; e < count; e += blockDim.x) counts[e] = 0;
  __syncthreads();
  for (int64_t pair = threadIdx.x; pair < pairs; pair += blockDim.x)
    if (const int64_t expert = place(pair); expert >= 0) atomicAdd(counts + expert, 1);
  __syncthreads();
  if (threadIdx.x < warp_size) {  // each lane has some neighbours of the experts
    const int lane = threadIdx.x;
    const int64_t each = (count + warp_size - 1) / warp_size, begin = lane * each,
                  end = begin + each < count ? begin + each : count;
    int32_t own_pairs = 0, own_groups = 0;
    for (int64_t e = begin; e < end; ++e) {
      own_pairs += counts[e];
      own_groups += (counts[e] + rows - 1) / rows;
    }
    int32_t pairs_here = own_pairs, groups_here = own_groups;
#pragma unroll
    for (int distance = 1; distance < warp_size; distance *= 2) {
      const int32_t more_pairs = __shfl_up_sync(all_lanes, pairs_here, distance);
      const int32_t more_groups = __shfl_up_sync(all_lanes, groups_here, distance);
      if (lane >= distance) {
        pairs_here += more_pairs;
        groups_here += more_groups;
      }
    }
    if (lane == warp_size - 1) used = groups_here;
    int32_t pair = pairs_here - own_pairs, group = groups_here - own_groups;
    for (int64_t e = begin; e < end; ++e) {
      const int32_t after = pair + counts[e];
      counts[e] = pair;
      for (; pair < after; pair += rows)
        groups[group++] = {static_cast<int32_t>(e), pair,
                           pair + rows < after ? pair + rows : after};
      pair = after;
    }
  }
  __syncthreads();
  for (int64_t group = used + threadIdx.x; group < num_groups; group += blockDim.x)
    groups[group] = {-1, 0, 0};
  for (int64_t pair = threadIdx.x; pair < pairs; pair += blockDim.x) {
    int32_t at = -1;
    if (const int64_t expert = place(pair); expert >= 0) {
      at = atomicAdd(counts + expert, 1);
      order[at] = static_cast<int32_t>(pair);
    }
    places[pair] = at;
  }
}

/// Groups of few rows and their pairs, as kernels read them: what group_pairs_kernel wrote, or, where
/// `groups` is null, the pairs of one row, each of which is a group.
struct FewGroups {
  const ExpertGroup* groups;
  const int32_t* order;
  const int32_t* chosen;
  int64_t first, count;  ///< of the experts that are here

  __device__ ExpertGroup group(int64_t index) const {
    if (groups != nullptr) return groups[index];
    const int64_t expert = chosen[index] - first;
    const auto pair = static_cast<int32_t>(index);
    return {expert >= 0 && expert < count ? static_cast<int32_t>(expert) : -1, pair, pair + 1};
  }
  __device__ int64_t pair(int64_t place) const { return order != nullptr ? order[place] : place; }
};

/// What multiplies gate · x and up · x of a pair: its weight, where inputs are weighed. `weights` has
/// one for each pair, or is null.
__device__ __forceinline__ float input_factor(const float* weights, int64_t pair) {
  return weights != nullptr ? weights[pair] : 1.0f;
}

}  // namespace pecia::kernels::cuda
