// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The kernel of sums in one shot (one_shot.hpp).

#include "kernels/cuda/shared/all_devices.cuh"
#include "lib/ranks/comm/one_shot_layout.hpp"

namespace pecia::comm {

using kernels::cuda::Packed;

/// The i-th chunk of 16 bytes of numbers that may begin at any of them. Behind the last of `count`
/// numbers there are zeros.
template <typename T>
__device__ __forceinline__ Packed<T, 16 / sizeof(T)> load_chunk(const T* values, int64_t count,
                                                                int64_t i) {
  constexpr int size = 16 / sizeof(T);
  const T* const from = values + i * size;
  if ((i + 1) * size <= count && reinterpret_cast<uintptr_t>(from) % 16 == 0)
    return *reinterpret_cast<const Packed<T, size>*>(from);
  Packed<T, size> chunk = {};
  for (int e = 0; e < size && i * size + e < count; ++e) chunk.values[e] = from[e];
  return chunk;
}
template <typename T>
__device__ __forceinline__ void store_chunk(const Packed<T, 16 / sizeof(T)>& chunk, T* values,
                                            int64_t count, int64_t i) {
  constexpr int size = 16 / sizeof(T);
  T* const to = values + i * size;
  if ((i + 1) * size <= count && reinterpret_cast<uintptr_t>(to) % 16 == 0) {
    *reinterpret_cast<Packed<T, size>*>(to) = chunk;
    return;
  }
  for (int e = 0; e < size && i * size + e < count; ++e) to[e] = chunk.values[e];
}

/// Each value becomes the sum over ranks, which is added in fp32 in the order of the ranks and rounded
/// once, so that its bits are the same on all ranks and do not depend on who comes first. All ranks
/// call it with as many values, and with the same grid in every call.
///
/// A block copies its chunks to where other ranks see them, tells each rank's block of the same number
/// so, and waits until these have told it. Then it reads the chunks of all ranks. Calls are numbered by
/// counters in the device's memory, so a graph with the kernel may be launched again. They use two
/// buffers in turn: who writes for call n + 2 has been told of call n + 1 by all ranks, and each of
/// them had read what it needed of call n before.
///
/// Where *aborted is not 0, waiting blocks end, and the values are of no use.
/// Grid: one_shot_blocks blocks of one_shot_threads.
template <typename T>
__global__ void __launch_bounds__(one_shot_threads) one_shot_kernel(OneShotParams params) {
  constexpr int size = 16 / sizeof(T);
  using Chunk = Packed<T, size>;
  T* const values = static_cast<T*>(params.values);
  const int64_t chunks = (params.count + size - 1) / size;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  const uint32_t call = params.own_calls[blockIdx.x] + 1;
  const int64_t buffer = call % 2 * params.buffer_bytes;

  auto* const mine = reinterpret_cast<Chunk*>(params.buffers[params.rank] + buffer);
  for (int64_t i = first; i < chunks; i += step) mine[i] = load_chunk(values, params.count, i);
  __syncthreads();
  if (const int other = threadIdx.x; other < params.ranks) {
    const int place = static_cast<int>(blockIdx.x) * most_one_shot_ranks;
    kernels::cuda::tell_all_devices(params.told[other] + place + params.rank, call);
    const uint32_t* const told = params.told[params.rank] + place + other;
    // Numbers go round after 2³² calls. The host's memory is far, so it is looked at now and then.
    for (uint32_t looks = 1;
         static_cast<int32_t>(kernels::cuda::told_by_any_device(told) - call) < 0; ++looks) {
      if (looks % 256 == 0 && kernels::cuda::told_by_any_device(params.aborted) != 0) break;
      kernels::cuda::wait_a_little();
    }
  }
  __syncthreads();

  for (int64_t i = first; i < chunks; i += step) {
    float sums[size] = {};
    for (int rank = 0; rank < params.ranks; ++rank) {
      const Chunk chunk = kernels::cuda::read_of_any_device<T>(
          reinterpret_cast<const Chunk*>(params.buffers[rank] + buffer) + i);
#pragma unroll
      for (int e = 0; e < size; ++e) sums[e] += kernels::cuda::widen(chunk.values[e]);
    }
    Chunk sum;
#pragma unroll
    for (int e = 0; e < size; ++e) sum.values[e] = kernels::cuda::rounded_to<T>(sums[e]);
    store_chunk(sum, values, params.count, i);
  }
  if (threadIdx.x == 0) params.own_calls[blockIdx.x] = call;
}

}  // namespace pecia::comm
