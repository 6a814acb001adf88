// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Tokens as levels keep them, by selection: a block finds for each count the least token that it
/// keeps, by the digits of the tokens' keys, and then writes all tokens by class, in their order.

#include "kernels/api/kept_order.hpp"
#include "kernels/cuda/shared/stored.hpp"
#include "kernels/cuda/shared/warp.cuh"

namespace pecia::kernels::cuda {

struct KeptOrderParams {
  const float* importance;
  const OrderItem* items;
  const int64_t* counts;
  const PlaceRun* runs;
  int32_t* order;
};

inline constexpr int order_threads = 1024, order_digits = 256;
inline constexpr uint64_t above_all_keys = ~uint64_t{0};

/// The place of a token among all of its item: the greater, the earlier. No two are the same.
__device__ __forceinline__ uint64_t key_of(const float* importance, const OrderItem& item,
                                           int64_t token) {
  uint32_t weight = 0xffffffffu;
  if (token >= item.first && token < item.count - item.last)
    weight = importance[token] > 0 ? bits_of_float(importance[token]) : 0;
  return uint64_t{weight} << 32 | (0xfffffffeu - static_cast<uint32_t>(token));
}

/// What the threads of a block share while they select.
struct OrderSelection {
  uint32_t histogram[order_digits];
  int64_t left;  ///< tokens that are still to be kept, of those with the digit
  int digit;
  bool exact;  ///< all of those are
};

/// Finds the digit of the last token that is kept, by the first warp.
__device__ __forceinline__ void find_digit(OrderSelection& shared, int64_t left) {
  constexpr int digits = order_digits / warp_size;
  const int lane = threadIdx.x, top = order_digits - 1 - digits * lane;
  int64_t own = 0;
  for (int i = 0; i < digits; ++i) own += shared.histogram[top - i];
  int64_t kept = own;
  for (int distance = 1; distance < warp_size; distance *= 2) {
    const int64_t other = __shfl_up_sync(all_lanes, kept, distance);
    if (lane >= distance) kept += other;
  }
  kept -= own;  // by greater digits
  if (kept >= left || kept + own < left) return;
  int digit = top;
  while (kept + shared.histogram[digit] < left) kept += shared.histogram[digit--];
  shared.left = left - kept;
  shared.digit = digit;
  shared.exact = shared.left == shared.histogram[digit];
}

/// Returns the least key among the first `count` tokens, or one between it and the next one's.
__device__ __forceinline__ uint64_t least_kept(const float* importance, const OrderItem& item,
                                               int64_t count, OrderSelection& shared) {
  if (count == 0) return above_all_keys;
  if (count == item.count) return 0;
  uint64_t prefix = 0;
  int64_t left = count;
  for (int shift = 64 - 8; shift >= 0; shift -= 8) {
    for (int i = threadIdx.x; i < order_digits; i += blockDim.x) shared.histogram[i] = 0;
    __syncthreads();
    for (int64_t token = threadIdx.x; token < item.count; token += blockDim.x) {
      const uint64_t key = key_of(importance, item, token) >> shift;
      if (key >> 8 == prefix) atomicAdd(&shared.histogram[key % order_digits], uint32_t{1});
    }
    __syncthreads();
    if (threadIdx.x < warp_size) find_digit(shared, left);
    __syncthreads();
    prefix = prefix << 8 | static_cast<uint64_t>(shared.digit);
    left = shared.left;
    const bool exact = shared.exact;
    __syncthreads();
    if (exact) return prefix << shift;
  }
  return prefix;  // keys differ, so the last digit is exact
}

__device__ __forceinline__ int32_t place_of_token(const PlaceRun* run, int64_t token) {
  for (; token >= run->count; ++run) token -= run->count;
  return static_cast<int32_t>(run->begin + token);
}

/// Grid: items.
static __global__ __launch_bounds__(order_threads) void kept_order_kernel(KeptOrderParams params) {
  constexpr int most_classes = KeptOrderArgs::most_counts + 1;
  __shared__ OrderSelection selection;
  __shared__ uint64_t least[most_classes];
  __shared__ int64_t next[most_classes];  // entry of each class
  __shared__ int of_warps[most_classes][order_threads / warp_size];
  const OrderItem item = params.items[blockIdx.x];
  const float* const importance = params.importance + item.first_number;
  const int64_t* const counts = params.counts + item.first_count;
  const int num_classes = static_cast<int>(item.num_counts) + 1;
  bool divides = false;
  for (int i = 0; i < num_classes - 1; ++i) {
    divides |= 0 < counts[i] && counts[i] < item.count;
    const uint64_t key = least_kept(importance, item, counts[i], selection);
    if (threadIdx.x == 0) least[i] = key, next[i + 1] = counts[i];
  }
  if (threadIdx.x == 0) next[0] = 0;
  __syncthreads();

  const PlaceRun* const runs = params.runs + item.first_run;
  int32_t* const order = params.order + item.to;
  if (!divides) {
    for (int64_t token = threadIdx.x; token < item.count; token += blockDim.x)
      order[token] = place_of_token(runs, token);
    return;
  }
  const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
  const int num_warps = blockDim.x / warp_size;
  for (int64_t begin = 0; begin < item.count; begin += blockDim.x) {
    const int64_t token = begin + threadIdx.x;
    int of_token = num_classes, before = 0;
    if (token < item.count) {
      const uint64_t key = key_of(importance, item, token);
      of_token = 0;
      for (int i = 0; i < num_classes - 1; ++i) of_token += key < least[i];
    }
    for (int i = 0; i < num_classes; ++i) {
      const unsigned lanes = __ballot_sync(all_lanes, of_token == i);
      if (of_token == i) before = __popc(lanes & ((1u << lane) - 1));
      if (lane == 0) of_warps[i][warp] = __popc(lanes);
    }
    __syncthreads();
    if (of_token < num_classes) {
      for (int i = 0; i < warp; ++i) before += of_warps[of_token][i];
      order[next[of_token] + before] = place_of_token(runs, token);
    }
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < num_classes)
      for (int i = 0; i < num_warps; ++i) next[threadIdx.x] += of_warps[threadIdx.x][i];
    __syncthreads();
  }
}

}  // namespace pecia::kernels::cuda
