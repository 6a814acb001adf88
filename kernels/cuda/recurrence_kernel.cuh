// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/api/recurrence.hpp"
#include "kernels/cuda/shared/matrix.hpp"
#include "kernels/cuda/shared/stores.cuh"
#include "kernels/cuda/shared/vectors.cuh"
#include "kernels/cuda/shared/warp.cuh"

namespace pecia::kernels::cuda {

/// RecurrenceArgs as the kernel takes them. What is absent has no data.
struct Recurrent {
  Matrix<const float> q, k, v, decay, strength;
  const float* skip;
  Matrix<float> states, out;
  int64_t heads, key_heads, key_dim, value_dim;
};

/// A block has 32 columns of a head's state, in registers. 16 lanes share a column's key elements,
/// and have those of three more columns.
inline constexpr int recurrence_threads = 128, recurrence_columns = 32;
inline constexpr int lanes_of_column = 16, columns_of_lane = 4;
/// Rows that are copied to shared memory at a time, while the ones before them are taken in.
inline constexpr int recurrence_rows = 8;

/// What a block needs of some rows. `Keys` is the number of a column's elements in a lane.
template <int Keys>
struct RecurrenceChunk {
  static constexpr int key_dim = lanes_of_column * Keys;  ///< zeros from the real one on
  float k[recurrence_rows][key_dim], q[recurrence_rows][key_dim];
  float v[recurrence_rows][recurrence_columns];
  float decay[recurrence_rows], strength[recurrence_rows];
};

/// Begins the copy of `count` rows from `first` on.
template <int Keys>
__device__ __forceinline__ void copy_rows(const Recurrent& args, int64_t first, int count,
                                          int64_t head, int64_t first_column,
                                          RecurrenceChunk<Keys>& chunk) {
  constexpr int key_dim = RecurrenceChunk<Keys>::key_dim;
  const int64_t key_head = head * args.key_heads / args.heads;
  for (int i = threadIdx.x; i < count * key_dim; i += recurrence_threads) {
    const int row = i / key_dim, element = i % key_dim;
    const int64_t at = key_head * args.key_dim + element;
    const bool exists = element < args.key_dim;
    copy_4_async(&chunk.k[row][element], args.k.row(first + row) + at, exists);
    if (args.out.data != nullptr)
      copy_4_async(&chunk.q[row][element], args.q.row(first + row) + at, exists);
  }
  for (int i = threadIdx.x; i < count * recurrence_columns; i += recurrence_threads) {
    const int row = i / recurrence_columns, column = i % recurrence_columns;
    const int64_t at = first_column + column;
    const bool exists = args.v.data != nullptr && at < args.value_dim;
    copy_4_async(&chunk.v[row][column],
                 exists ? args.v.row(first + row) + head * args.value_dim + at : nullptr, exists);
  }
  for (int row = threadIdx.x; row < count; row += recurrence_threads) {
    copy_4_async(&chunk.decay[row], args.decay.row(first + row) + head, true);
    copy_4_async(&chunk.strength[row], args.strength.row(first + row) + head, true);
  }
}

/// Sums each of four numbers over the lanes of a column. A lane gets the sum of number `lane / 4`.
__device__ __forceinline__ float scattered_sum(const float (&numbers)[columns_of_lane], int lane) {
  const bool upper = lane & 8, odd = lane & 4;
  const float even = (upper ? numbers[2] : numbers[0]) +
                     __shfl_xor_sync(all_lanes, upper ? numbers[0] : numbers[2], 8);
  const float next = (upper ? numbers[3] : numbers[1]) +
                     __shfl_xor_sync(all_lanes, upper ? numbers[1] : numbers[3], 8);
  const float sum = (odd ? next : even) + __shfl_xor_sync(all_lanes, odd ? even : next, 4);
  return warp_sum<4>(sum);
}

/// The elements of four columns of a state that a lane has: numbers 4 · (lane + 16 n) to the next
/// three, n = 0 … Keys / 4 − 1, so that lanes read neighbouring keys.
template <int Keys>
struct LaneOfState {
  float elements[Keys][columns_of_lane];

  static __device__ __forceinline__ int key_of(int lane, int n) {
    return 4 * (lane + lanes_of_column * (n / 4)) + n % 4;
  }

  /// Calls access(element address, n) for those that exist.
  template <typename Access>
  __device__ __forceinline__ void for_each(const Recurrent& args, float* state, int lane,
                                           const Access& access) {
#pragma unroll
    for (int n = 0; n < Keys; ++n)
      if (const int key = key_of(lane, n); key < args.key_dim)
        access(state + key * args.value_dim, elements[n]);
  }
};

/// See RecurrenceArgs. Takes in the rows of an item for 32 columns of a head, in their order.
/// Everything is computed in fp32, and the same for each row wherever a call begins.
/// With `Vectors`, four columns of a state can be accessed at once.
/// Grid: items × heads × slices of 32 columns. Shared memory: two chunks.
template <bool Corrects, int Keys, bool Vectors>
__global__ void __launch_bounds__(recurrence_threads)
    recurrence_kernel(Recurrent args, const StateRows* items) {
  wait_for_earlier_kernels();
  const int64_t slices = (args.value_dim + recurrence_columns - 1) / recurrence_columns;
  const StateRows item = items[blockIdx.x / (args.heads * slices)];
  if (item.num_rows == 0) return;
  const int64_t head = blockIdx.x / slices % args.heads;
  const int64_t first_column = blockIdx.x % slices * recurrence_columns;
  const int lane = threadIdx.x % lanes_of_column;
  const int own = threadIdx.x / lanes_of_column * columns_of_lane;  // the first of its columns here
  const int columns = static_cast<int>(
      max(int64_t{0}, min(int64_t{columns_of_lane}, args.value_dim - first_column - own)));
  float* const state_of_columns =
      args.states.row(item.state) + head * args.key_dim * args.value_dim + first_column + own;
  auto* const chunks = reinterpret_cast<RecurrenceChunk<Keys>*>(dynamic_shared());
  const auto copy = [&](int64_t done) {
    const int count = static_cast<int>(min(int64_t{recurrence_rows}, item.num_rows - done));
    if (count > 0)
      copy_rows<Keys>(args, item.first_row + done, count, head, first_column,
                      chunks[done / recurrence_rows % 2]);
    commit_copies();
  };

  copy(0);
  LaneOfState<Keys> state = {};
  state.for_each(args, state_of_columns, lane, [&](const float* from, float(&to)[columns_of_lane]) {
    if constexpr (Vectors) {
      if (columns > 0) load<columns_of_lane>(from, to);
    } else {
#pragma unroll
      for (int c = 0; c < columns_of_lane; ++c) to[c] = c < columns ? from[c] : 0.0f;
    }
  });
  const float skip = args.skip != nullptr ? args.skip[head] : 0.0f;

  for (int64_t done = 0; done < item.num_rows; done += recurrence_rows) {
    copy(done + recurrence_rows);
    wait_for_copies<1>();
    __syncthreads();
    const RecurrenceChunk<Keys>& chunk = chunks[done / recurrence_rows % 2];
    const int count = static_cast<int>(min(int64_t{recurrence_rows}, item.num_rows - done));
    for (int row = 0; row < count; ++row) {
      const float decay = expf(chunk.decay[row]), strength = chunk.strength[row];
      float keys[Keys], changes[columns_of_lane], results[columns_of_lane] = {};
#pragma unroll
      for (int n = 0; n < Keys; n += 4) {
        float some[4];
        load<4>(&chunk.k[row][LaneOfState<Keys>::key_of(lane, n)], some);
#pragma unroll
        for (int i = 0; i < 4; ++i) keys[n + i] = some[i];
      }
      load<columns_of_lane>(&chunk.v[row][own], changes);
      if constexpr (Corrects) {
        float read[columns_of_lane] = {};
#pragma unroll
        for (int n = 0; n < Keys; ++n)
#pragma unroll
          for (int c = 0; c < columns_of_lane; ++c)
            read[c] = fmaf(keys[n], state.elements[n][c], read[c]);
#pragma unroll
        for (int c = 0; c < columns_of_lane; ++c)
          changes[c] = fmaf(-decay, warp_sum<lanes_of_column>(read[c]), changes[c]);
      }
#pragma unroll
      for (int c = 0; c < columns_of_lane; ++c) changes[c] = multiply(strength, changes[c]);
#pragma unroll
      for (int n = 0; n < Keys; n += 4) {
        float queries[4] = {};
        if (args.out.data != nullptr)
          load<4>(&chunk.q[row][LaneOfState<Keys>::key_of(lane, n)], queries);
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int c = 0; c < columns_of_lane; ++c) {
            float& element = state.elements[n + i][c];
            element = fmaf(keys[n + i], changes[c], multiply(decay, element));
            results[c] = fmaf(queries[i], element, results[c]);
          }
      }
      if (args.out.data == nullptr) continue;
      float result = scattered_sum(results, lane);
      const int column = lane / 4;
      if (args.skip != nullptr) result = fmaf(skip, chunk.v[row][own + column], result);
      if (lane % 4 == 0 && column < columns)
        args.out.row(item.first_row + done +
                     row)[head * args.value_dim + first_column + own + column] = result;
    }
    __syncthreads();
  }
  let_next_kernel_begin();
  state.for_each(args, state_of_columns, lane, [&](float* to, float(&from)[columns_of_lane]) {
    if constexpr (Vectors) {
      if (columns > 0) store_128(from, to);
    } else {
#pragma unroll
      for (int c = 0; c < columns_of_lane; ++c)
        if (c < columns) to[c] = from[c];
    }
  });
}

}  // namespace pecia::kernels::cuda
