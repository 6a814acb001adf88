// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The ops that touch each element once. Grid x is the row, and grid y cuts it into pieces. A
/// thread takes `Count` elements at a time.

#include "kernels/api/gated_activation.hpp"
#include "kernels/api/linear.hpp"
#include "kernels/cuda/rope_pairs.hpp"
#include "kernels/cuda/shared/matrix.hpp"
#include "kernels/cuda/shared/vectors.cuh"

namespace pecia::kernels::cuda {

/// Return the first of this thread's columns, and the step to its next.
template <int Count>
__device__ __forceinline__ int64_t first_column() {
  return Count * (int64_t{blockIdx.y} * blockDim.x + threadIdx.x);
}
template <int Count>
__device__ __forceinline__ int64_t column_step() {
  return Count * (int64_t{gridDim.y} * blockDim.x);
}

/// to = from, widened or rounded to the other type.
template <int Count, typename From, typename To>
__global__ void convert_kernel(Matrix<const From> from, Matrix<To> to) {
  const int64_t row = blockIdx.x;
  for (int64_t i = first_column<Count>(); i < from.columns; i += column_step<Count>()) {
    float values[Count];
    load<Count>(from.row(row) + i, values);
    store<Count>(values, to.row(row) + i);
  }
}

/// See Activation.
__device__ __forceinline__ float activated(float gate, float up, Activation activation) {
  if (activation.kind == Activation::Kind::relu) return (gate < 0 ? 0.0f : gate) * up;
  float slope = gate;
  if (activation.kind == Activation::Kind::gelu_tanh) {
    slope = gelu_slope * (gate + gelu_cube * gate * gate * gate);
  } else if (activation.kind == Activation::Kind::clamped) {  // compared so that NaN stays
    const float limit = activation.limit;
    gate = gate > limit ? limit : gate;
    up = 1.0f + (up > limit ? limit : up < -limit ? -limit : up);
    slope = activation.slope * gate;
  } else if (activation.kind == Activation::Kind::sigmoid) {
    gate = 1.0f;
  }
  return gate / (1.0f + expf(-slope)) * up;
}

/// A gate of one column is the same for all columns.
template <int Count, typename In, typename Out>
__global__ void gated_activation_kernel(Matrix<const In> gate, Matrix<const In> up, Matrix<Out> out,
                                        Activation activation) {
  const int64_t row = blockIdx.x;
  for (int64_t i = first_column<Count>(); i < out.columns; i += column_step<Count>()) {
    float gates[Count], ups[Count];
    if (gate.columns == 1) {
#pragma unroll
      for (int j = 0; j < Count; ++j) gates[j] = widen(*gate.row(row));
    } else {
      load<Count>(gate.row(row) + i, gates);
    }
    load<Count>(up.row(row) + i, ups);
#pragma unroll
    for (int j = 0; j < Count; ++j) gates[j] = activated(gates[j], ups[j], activation);
    store<Count>(gates, out.row(row) + i);
  }
}

template <int Count, typename T>
__global__ void add_kernel(Matrix<const T> x, Matrix<float> y, float scale) {
  const int64_t row = blockIdx.x;
  for (int64_t i = first_column<Count>(); i < y.columns; i += column_step<Count>()) {
    float added[Count], sum[Count];
    load<Count>(x.row(row) + i, added);
    load<Count>(y.row(row) + i, sum);
#pragma unroll
    for (int j = 0; j < Count; ++j) sum[j] = (sum[j] + added[j]) * scale;
    store<Count>(sum, y.row(row) + i);
  }
}

/// See SoftCapArgs.
template <int Count>
__global__ void soft_cap_kernel(Matrix<float> x, float cap) {
  const int64_t row = blockIdx.x;
  for (int64_t i = first_column<Count>(); i < x.columns; i += column_step<Count>()) {
    float values[Count];
    load<Count>(x.row(row) + i, values);
#pragma unroll
    for (int j = 0; j < Count; ++j) values[j] = cap * tanhf(values[j] / cap);
    store<Count>(values, x.row(row) + i);
  }
}

/// See SumRowsArgs. A row of one term is copied: floats of 16 bits are the same after both roundings.
template <int Count, typename T>
__global__ void sum_rows_kernel(Matrix<const T> x, const int32_t* which, int64_t terms, bool adds,
                                bool largest, Matrix<T> out) {
  const int64_t row = blockIdx.x;
  for (int64_t i = first_column<Count>(); i < out.columns; i += column_step<Count>()) {
    float sums[Count] = {}, values[Count];
    for (int64_t j = 0; j < terms; ++j) {
      const int32_t from = which[row * terms + j];
      if (from < 0) continue;
      load<Count>(x.row(from) + i, values);
#pragma unroll
      for (int c = 0; c < Count; ++c)
        sums[c] = !largest ? sums[c] + values[c] : values[c] > sums[c] ? values[c] : sums[c];
    }
    if (adds) {
      load<Count>(out.row(row) + i, values);
#pragma unroll
      for (int c = 0; c < Count; ++c) sums[c] += values[c];
    }
    store<Count>(sums, out.row(row) + i);
  }
}

template <int Count, typename T>
__global__ void embedding_kernel(Matrix<const T> table, const int32_t* tokens, int64_t first_token,
                                 float scale, Matrix<float> out) {
  const int64_t row = blockIdx.x, from = tokens[row] - first_token;
  const bool known = from >= 0 && from < table.rows;
  for (int64_t i = first_column<Count>(); i < out.columns; i += column_step<Count>()) {
    float values[Count];
#pragma unroll
    for (int j = 0; j < Count; ++j) values[j] = -0.0f;
    if (known) load<Count>(table.row(from) + i, values);
#pragma unroll
    for (int j = 0; j < Count; ++j) values[j] *= scale;
    store<Count>(values, out.row(row) + i);
  }
}

/// Columns of x are (head, element). Rows of the cache are heads, and its columns are (slot,
/// element).
template <int Count, typename T>
__global__ void kv_store_kernel(Matrix<const float> x, int64_t head_dim, const int64_t* slots,
                                Matrix<T> cache) {
  const int64_t row = blockIdx.x;
  const int64_t begin = slots[row] * head_dim;
  const int width = static_cast<int>(head_dim);
  for (int64_t i = first_column<Count>(); i < x.columns; i += column_step<Count>()) {
    const int head = static_cast<int>(i) / width;
    float values[Count];
    load<Count>(x.row(row) + i, values);
    store<Count>(values, cache.row(head) + begin + (i - int64_t{head} * width));
  }
}

/// What rope kernels read besides x.
struct RopeHeads {
  int64_t heads, head_dim, first;  ///< first: where a head's rotated elements begin
  RopePairs pairs;
  int32_t unused = 0;
  Matrix<const float> cos, sin;
  const float* scale;  ///< of each row, or null

  __device__ __forceinline__ float scale_of(int64_t row) const {
    return scale != nullptr ? scale[row] : 1.0f;
  }
};

/// Columns here are (head, angle): a thread turns `Count` pairs at a time. Several at a time are
/// pairs of halves, whose number in a head `Count` divides. Turned elements begin at `first` of a
/// head, and are multiplied by their row's number in `scale` where it is not null. `out` may be x.
template <int Count, typename Out>
__global__ void rope_kernel(Matrix<const float> x, RopeHeads with, Matrix<Out> out) {
  const int64_t row = blockIdx.x;
  const int half = static_cast<int>(with.cos.columns);
  const float scale = with.scale_of(row);
  for (int64_t i = first_column<Count>(); i < with.heads * half; i += column_step<Count>()) {
    const int head = static_cast<int>(i) / half, angle = static_cast<int>(i) % half;
    const RopePair pair = rope_pair(with.pairs, angle, half);
    const float* const from = x.row(row) + head * with.head_dim + with.first;
    Out* const to = out.row(row) + head * with.head_dim + with.first;
    float c[Count], s[Count], a[Count], b[Count];
    load<Count>(with.cos.row(row) + angle, c);
    load<Count>(with.sin.row(row) + angle, s);
    load<Count>(from + pair.first, a);
    load<Count>(from + pair.second, b);
#pragma unroll
    for (int j = 0; j < Count; ++j) {
      turn(a[j], b[j], c[j], s[j]);
      a[j] *= scale, b[j] *= scale;
    }
    store<Count>(a, to + pair.first);
    store<Count>(b, to + pair.second);
  }
}

/// The elements of heads that rope_kernel leaves: columns here are (head, one of these).
template <typename Out>
__global__ void rope_rest_kernel(Matrix<const float> x, RopeHeads with, Matrix<Out> out) {
  const int64_t row = blockIdx.x, rotated = 2 * with.cos.columns, rest = with.head_dim - rotated;
  const float scale = with.scale_of(row);
  for (int64_t i = first_column<1>(); i < with.heads * rest; i += column_step<1>()) {
    const int64_t index = i % rest;
    const int64_t element =
        i / rest * with.head_dim + (index < with.first ? index : index + rotated);
    const float value[1] = {x.row(row)[element] * scale};
    store<1>(value, out.row(row) + element);
  }
}

/// y (+)= bias, which is what a product of no columns leaves. `bias` may be null.
static __global__ void add_nothing_kernel(Matrix<float> y, const float* bias,
                                          Accumulate accumulate) {
  float* const row = y.row(blockIdx.x);
  for (int64_t i = first_column<1>(); i < y.columns; i += column_step<1>())
    row[i] = (accumulate == Accumulate::yes ? row[i] : 0.0f) + (bias != nullptr ? bias[i] : 0.0f);
}

}  // namespace pecia::kernels::cuda
