// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Recurrences in chunks of C = 64 rows, whose products are those of tensor cores. With the decays g of a
/// chunk's rows, G_i = g_1 + … + g_i, D_ij = e^(G_i − G_j) for j ≤ i, and S as the chunk finds it:
///
///     A = strictly lower (diag(strength) K Kᵀ ⊙ D)     T = (I + A)⁻¹ diag(strength)
///     P = lower with diagonal (Q Kᵀ ⊙ D)               these are a chunk's parts
///     N = T (V − diag(e^G) K S)                        without the correction: diag(strength) V
///     out = diag(e^G) Q S + P N + skip V
///     S ← e^(G_C) S + Kᵀ diag(e^(G_C − G)) N
///
/// It is the form of Yang, Kautz, Hatamizadeh, "Gated Delta Networks" (arXiv 2412.06464), §3.3, and of Dao and
/// Gu, "Transformers are SSMs" (arXiv 2405.21060), §6. Rows that a last chunk lacks are zeros. Exponents
/// are differences of sums in fp64, so decays of any size cost no digits.
///
/// With keys of length one and strengths up to one all elements of (I + A)⁻¹ are between −1 and 1, since
/// they are products of k_i, of maps that make nothing longer, and of k_j.
///
/// An operand of a product is rounded to TF32 `Once`, or is the sum of two numbers of TF32, whose three
/// larger products are added: within 2⁻²¹ of fp32's.

#include "kernels/cuda/recurrence_chunks.hpp"
#include "kernels/cuda/recurrence_kernel.cuh"
#include "kernels/cuda/shared/fragments.hpp"

namespace pecia::kernels::cuda {

inline constexpr int chunk_threads = 128, chunk_warps = 4;
inline constexpr int chunk_columns = 32;  ///< of a state that a block has
static_assert(chunk_rows == 16 * chunk_warps, "a warp has 16 rows");

/// What the rows of a chunk are to each other, for a head.
struct ChunkParts {
  float t[chunk_rows][chunk_rows], p[chunk_rows][chunk_rows];  ///< t only where it corrects
  float decayed[chunk_rows];                                   ///< e^G_i
  float left[chunk_rows];                                      ///< e^(G_C − G_i)
  float strength[chunk_rows];
};

/// Rows in shared memory, so far apart that a product's operands come from different banks: eight
/// rows at four columns from RowsOf, and four rows at eight columns from ColumnsOf.
template <int Columns>
using RowsOf = float[Columns + 4];
template <int Columns>
using ColumnsOf = float[Columns + 8];

/// Numbers as operands of a product.
template <bool Once, int Count>
struct Operand {
  float high[Count], low[Count];

  __device__ __forceinline__ void set(int i, float x) {
    high[i] = to_tf32(x);
    low[i] = Once ? 0.0f : to_tf32(x - high[i]);
  }
};

template <bool Once>
__device__ __forceinline__ void multiply_into(float (&d)[4], const Operand<Once, 4>& a,
                                              const Operand<Once, 2>& b) {
  if constexpr (!Once) {
    mma_16x8x8(d, a.low, b.high);
    mma_16x8x8(d, a.high, b.low);
  }
  mma_16x8x8(d, a.high, b.high);
}

/// The operand `a` at rows from `row` and columns from `column` of a matrix.
template <bool Once, int Stride>
__device__ __forceinline__ Operand<Once, 4> left_operand(const float (*matrix)[Stride], int row,
                                                         int column, int lane) {
  Operand<Once, 4> a;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const Place place = a_place_of_tf32(lane, i);
    a.set(i, matrix[row + place.row][column + place.column]);
  }
  return a;
}

/// The operand `b` at rows from `row` and columns from `column` of a matrix.
template <bool Once, int Stride>
__device__ __forceinline__ Operand<Once, 2> right_operand(const float (*matrix)[Stride], int row,
                                                          int column, int lane) {
  Operand<Once, 2> b;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const Place place = b_place_of_tf32(lane, i);
    b.set(i, matrix[row + place.row][column + place.column]);
  }
  return b;
}

/// Begins to copy a chunk's keys, or queries. Rows and columns that it lacks become zeros.
template <int KeyDim>
__device__ __forceinline__ void copy_chunk(const Matrix<const float>& from, const ChunkRows& chunk,
                                           int64_t first_column, int64_t key_dim,
                                           RowsOf<KeyDim>* to) {
  constexpr int pieces = KeyDim / 4;
  for (int i = threadIdx.x; i < chunk_rows * pieces; i += chunk_threads) {
    const int row = i / pieces, column = 4 * (i % pieces);
    const bool exists = row < chunk.num_rows && column < key_dim;
    copy_16_async(&to[row][column],
                  exists ? from.row(chunk.first_row + row) + first_column + column : from.data,
                  exists);
  }
}

/// Begins to copy a chunk's t, or p.
__device__ __forceinline__ void copy_part(const float (*from)[chunk_rows], RowsOf<chunk_rows>* to) {
  constexpr int pieces = chunk_rows / 4;
  for (int i = threadIdx.x; i < chunk_rows * pieces; i += chunk_threads) {
    const int row = i / pieces, column = 4 * (i % pieces);
    copy_16_async(&to[row][column], &from[row][column], true);
  }
}

/// What a block needs to make a chunk's parts.
template <int KeyDim>
struct PartsMemory {
  RowsOf<KeyDim> k[chunk_rows], q[chunk_rows];
  RowsOf<chunk_rows> a[chunk_rows], inverse[chunk_rows];
  RowsOf<chunk_rows / 2> between[chunk_rows / 2];
  double sums[chunk_rows];  ///< G
  float strength[chunk_rows];
};

/// The decays of a chunk added up, and its strengths. The block waits for them afterwards. Rows that the
/// chunk lacks neither decay nor have a strength. No state is left of a decay below the least.
__device__ __forceinline__ void sum_decays(const Recurrent& args, const ChunkRows& chunk,
                                           int64_t head, double* sums, float* strength) {
  constexpr float least_decay = -1e4f;  // e to it is 0
  if (threadIdx.x >= warp_size) return;
  const int lane = threadIdx.x;
  double decays[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = 2 * lane + i;
    const bool exists = row < chunk.num_rows;
    const float decay = exists ? args.decay.row(chunk.first_row + row)[head] : 0.0f;
    decays[i] = decay < least_decay ? least_decay : decay;
    strength[row] = exists ? args.strength.row(chunk.first_row + row)[head] : 0.0f;
  }
  double sum = decays[0] + decays[1];
#pragma unroll
  for (int distance = 1; distance < warp_size; distance *= 2) {
    const double before = __shfl_up_sync(all_lanes, sum, distance);
    if (lane >= distance) sum += before;
  }
  const double before = __shfl_up_sync(all_lanes, sum, 1);
  sums[2 * lane] = (lane > 0 ? before : 0.0) + decays[0];
  sums[2 * lane + 1] = sums[2 * lane] + decays[1];
}

/// Given the inverses of two blocks of `Size` rows on the diagonal, finds what is below the first of
/// them: −(the second) · a · (the first).
template <int Size>
__device__ __forceinline__ void join_inverses(const RowsOf<chunk_rows>* a,
                                              RowsOf<chunk_rows>* inverse,
                                              RowsOf<chunk_rows / 2>* between) {
  constexpr int block = 16;  // what is above the diagonal is known to be zero in blocks of these
  for (int i = threadIdx.x; i < chunk_rows / 2 * Size; i += chunk_threads) {
    const int row = i / Size, column = i % Size, first = row / Size * 2 * Size;
    const float* const below = a[first + Size + row % Size];
    float sum = 0;
    for (int n = column / block * block; n < Size; ++n)
      sum = fmaf(below[first + n], inverse[first + n][first + column], sum);
    between[row][column] = sum;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < chunk_rows / 2 * Size; i += chunk_threads) {
    const int row = i / Size, column = i % Size, first = row / Size * 2 * Size;
    const int own = first + Size + row % Size;
    float sum = 0;
    for (int n = 0; n < row % Size / block * block + block; ++n)
      sum = fmaf(inverse[own][first + Size + n], between[row / Size * Size + n][column], sum);
    inverse[own][first + column] = -sum;
  }
  __syncthreads();
}

/// The inverse of I + a, of which `a` is what is below the diagonal. It is written where it is not zero.
__device__ __forceinline__ void invert(const RowsOf<chunk_rows>* a, RowsOf<chunk_rows>* inverse,
                                       RowsOf<chunk_rows / 2>* between) {
  constexpr int block = 16;
  if (threadIdx.x < chunk_rows) {
    const int first = threadIdx.x / block * block, column = threadIdx.x % block;
    float x[block];
#pragma unroll
    for (int i = 0; i < block; ++i) {
      x[i] = i == column ? 1.0f : 0.0f;
#pragma unroll
      for (int j = 0; j < i; ++j) x[i] = fmaf(-a[first + i][first + j], x[j], x[i]);
      inverse[first + i][first + column] = x[i];
    }
  }
  __syncthreads();
  join_inverses<block>(a, inverse, between);
  join_inverses<2 * block>(a, inverse, between);
}

/// Makes the parts of a chunk for all heads of a key head. `parts`: [chunks, heads].
/// Grid: chunks × key heads. Shared memory: PartsMemory.
template <bool Corrects, int KeyDim, bool Once>
__global__ void __launch_bounds__(chunk_threads)
    chunk_parts_kernel(Recurrent args, const ChunkRows* chunks, ChunkParts* parts) {
  auto& memory = *reinterpret_cast<PartsMemory<KeyDim>*>(dynamic_shared());
  const int64_t key_head = blockIdx.x % args.key_heads, number = blockIdx.x / args.key_heads;
  const ChunkRows chunk = chunks[number];
  const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
  copy_chunk<KeyDim>(args.k, chunk, key_head * args.key_dim, args.key_dim, memory.k);
  copy_chunk<KeyDim>(args.q, chunk, key_head * args.key_dim, args.key_dim, memory.q);
  commit_copies();
  wait_for_copies<0>();
  __syncthreads();

  // A warp's rows with all rows up to its last one.
  constexpr int tiles = chunk_rows / 8;
  float of_keys[tiles][4] = {}, of_queries[tiles][4] = {};
#pragma unroll 2
  for (int depth = 0; depth < KeyDim; depth += 8) {
    Operand<Once, 4> keys;
    if constexpr (Corrects) keys = left_operand<Once>(memory.k, 16 * warp, depth, lane);
    const auto queries = left_operand<Once>(memory.q, 16 * warp, depth, lane);
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile)
      if (tile < 2 * (warp + 1)) {
        Operand<Once, 2> b;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const Place place = b_place_of_tf32(lane, i);
          b.set(i, memory.k[8 * tile + place.column][depth + place.row]);
        }
        if constexpr (Corrects) multiply_into<Once>(of_keys[tile], keys, b);
        multiply_into<Once>(of_queries[tile], queries, b);
      }
  }

  const int64_t first_head = (key_head * args.heads + args.key_heads - 1) / args.key_heads;
  const int64_t end_head = ((key_head + 1) * args.heads + args.key_heads - 1) / args.key_heads;
  for (int64_t head = first_head; head < end_head; ++head) {
    ChunkParts& out = parts[number * args.heads + head];
    sum_decays(args, chunk, head, memory.sums, memory.strength);
    __syncthreads();
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile)
      if (tile < 2 * (warp + 1))
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const Place place = d_place(lane, i);
          const int row = 16 * warp + place.row, column = 8 * tile + place.column;
          const float decay =
              column > row ? 0.0f
                           : expf(static_cast<float>(memory.sums[row] - memory.sums[column]));
          out.p[row][column] = column > row ? 0.0f : of_queries[tile][i] * decay;
          if constexpr (Corrects)
            memory.a[row][column] =
                column < row ? memory.strength[row] * (of_keys[tile][i] * decay) : 0.0f;
        }
    for (int row = threadIdx.x; row < chunk_rows; row += chunk_threads) {
      out.decayed[row] = expf(static_cast<float>(memory.sums[row]));
      out.left[row] = expf(static_cast<float>(memory.sums[chunk_rows - 1] - memory.sums[row]));
      out.strength[row] = memory.strength[row];
    }
    __syncthreads();
    if constexpr (Corrects) {
      invert(memory.a, memory.inverse, memory.between);
      for (int i = threadIdx.x; i < chunk_rows * chunk_rows; i += chunk_threads) {
        const int row = i / chunk_rows, column = i % chunk_rows;
        out.t[row][column] =
            column > row ? 0.0f : memory.inverse[row][column] * memory.strength[column];
      }
      __syncthreads();
    }
  }
}

/// What a block needs of the chunk that it takes in, and of the next one.
template <int KeyDim>
struct ChunkMemory {
  RowsOf<KeyDim> k[2][chunk_rows], q[chunk_rows];
  RowsOf<chunk_rows> t[chunk_rows], p[chunk_rows];
  ColumnsOf<chunk_columns> state[KeyDim];
  ColumnsOf<chunk_columns> rest[chunk_rows];  ///< V − diag(e^G) K S
  ColumnsOf<chunk_columns> news[chunk_rows];  ///< N
  float decayed[2][chunk_rows], left[2][chunk_rows];
};

/// Takes in the chunks of a span for 32 columns of a head, one after the other.
/// Grid: spans × heads × slices of 32 columns. Shared memory: ChunkMemory. `parts`: of the chunks from
/// `first_chunk` on.
template <bool Corrects, int KeyDim, bool Once>
__global__ void __launch_bounds__(chunk_threads, 1)
    recurrence_chunks_kernel(Recurrent args, const ChunkSpan* spans, const ChunkRows* chunks,
                             int64_t first_chunk, const ChunkParts* parts) {
  constexpr int column_tiles = chunk_columns / 8, state_tiles = KeyDim / (16 * chunk_warps);
  auto& memory = *reinterpret_cast<ChunkMemory<KeyDim>*>(dynamic_shared());
  const int64_t slices = (args.value_dim + chunk_columns - 1) / chunk_columns;
  const ChunkSpan span = spans[blockIdx.x / (args.heads * slices)];
  const int64_t head = blockIdx.x / slices % args.heads;
  const int64_t first_column = blockIdx.x % slices * chunk_columns;
  const int columns = static_cast<int>(min(int64_t{chunk_columns}, args.value_dim - first_column));
  const int64_t first_key = head * args.key_heads / args.heads * args.key_dim;
  const int64_t first_value = head * args.value_dim + first_column;
  const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
  float* const there =
      args.states.row(span.state) + head * args.key_dim * args.value_dim + first_column;
  const auto parts_of = [&](int64_t n) -> const ChunkParts& {
    return parts[(span.first_chunk + n - first_chunk) * args.heads + head];
  };
  const auto copy_keys = [&](int64_t n) {
    if (n < span.num_chunks) {
      copy_chunk<KeyDim>(args.k, chunks[span.first_chunk + n], first_key, args.key_dim,
                         memory.k[n % 2]);
      for (int row = threadIdx.x; row < chunk_rows; row += chunk_threads) {
        copy_4_async(&memory.decayed[n % 2][row], &parts_of(n).decayed[row], true);
        copy_4_async(&memory.left[n % 2][row], &parts_of(n).left[row], true);
      }
    }
    commit_copies();
  };
  const auto copy_queries = [&](int64_t n) {
    if (n < span.num_chunks)
      copy_chunk<KeyDim>(args.q, chunks[span.first_chunk + n], first_key, args.key_dim, memory.q);
    commit_copies();
  };
  const auto copy_t = [&](int64_t n) {
    if (Corrects && n < span.num_chunks) copy_part(parts_of(n).t, memory.t);
    commit_copies();
  };
  const auto copy_p = [&](int64_t n) {
    if (n < span.num_chunks) copy_part(parts_of(n).p, memory.p);
    commit_copies();
  };
  /// Calls access(row, column, tile of rows, tile of columns, element) for a lane's part of the state.
  const auto for_each_of_state = [&](const auto& access) {
#pragma unroll
    for (int m = 0; m < state_tiles; ++m)
#pragma unroll
      for (int n = 0; n < column_tiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const Place place = d_place(lane, i);
          access(16 * (warp * state_tiles + m) + place.row, 8 * n + place.column, m, n, i);
        }
  };

  copy_keys(0), copy_queries(0), copy_t(0), copy_p(0);
  float state[state_tiles][column_tiles][4];
  for_each_of_state([&](int row, int column, int m, int n, int i) {
    const bool exists = row < args.key_dim && column < columns;
    state[m][n][i] = exists ? there[row * args.value_dim + column] : 0.0f;
  });
  const float skip = args.skip != nullptr ? args.skip[head] : 0.0f;

  for (int64_t number = 0; number < span.num_chunks; ++number) {
    const ChunkRows chunk = chunks[span.first_chunk + number];
    const int here = static_cast<int>(number % 2);
    for_each_of_state([&](int row, int column, int m, int n, int i) {
      memory.state[row][column] = state[m][n][i];
    });
    float values[column_tiles][4];
#pragma unroll
    for (int n = 0; n < column_tiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Place place = d_place(lane, i);
        const int row = 16 * warp + place.row, column = 8 * n + place.column;
        values[n][i] = row < chunk.num_rows && column < columns
                           ? args.v.row(chunk.first_row + row)[first_value + column]
                           : 0.0f;
      }
    wait_for_copies<1>();  // p may come later
    __syncthreads();
    copy_keys(number + 1);

    float read[column_tiles][4] = {}, results[column_tiles][4] = {};
#pragma unroll 2
    for (int depth = 0; depth < KeyDim; depth += 8) {
      Operand<Once, 4> keys;
      if constexpr (Corrects) keys = left_operand<Once>(memory.k[here], 16 * warp, depth, lane);
      const auto queries = left_operand<Once>(memory.q, 16 * warp, depth, lane);
#pragma unroll
      for (int n = 0; n < column_tiles; ++n) {
        const auto b = right_operand<Once>(memory.state, depth, 8 * n, lane);
        if constexpr (Corrects) multiply_into<Once>(read[n], keys, b);
        multiply_into<Once>(results[n], queries, b);
      }
    }
#pragma unroll
    for (int n = 0; n < column_tiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Place place = d_place(lane, i);
        const int row = 16 * warp + place.row, column = 8 * n + place.column;
        const float decayed = memory.decayed[here][row];
        results[n][i] *= decayed;
        if constexpr (Corrects)
          memory.rest[row][column] = fmaf(-decayed, read[n][i], values[n][i]);
        else
          memory.news[row][column] = parts_of(number).strength[row] * values[n][i];
      }
    wait_for_copies<1>();  // all but the next keys: p is there
    __syncthreads();
    copy_queries(number + 1);

    if constexpr (Corrects) {
      float news[column_tiles][4] = {};
      for (int depth = 0; depth < 16 * (warp + 1); depth += 8) {
        const auto t = left_operand<Once>(memory.t, 16 * warp, depth, lane);
#pragma unroll
        for (int n = 0; n < column_tiles; ++n)
          multiply_into<Once>(news[n], t, right_operand<Once>(memory.rest, depth, 8 * n, lane));
      }
#pragma unroll
      for (int n = 0; n < column_tiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const Place place = d_place(lane, i);
          memory.news[16 * warp + place.row][8 * n + place.column] = news[n][i];
        }
      __syncthreads();
    }
    copy_t(number + 1);

    const float whole_decay = memory.decayed[here][chunk_rows - 1];
    for_each_of_state([&](int, int, int m, int n, int i) { state[m][n][i] *= whole_decay; });
#pragma unroll 2
    for (int depth = 0; depth < chunk_rows; depth += 8) {
      const bool sees = depth < 16 * (warp + 1);  // the warp's rows see these
      Operand<Once, 4> p, keys[state_tiles];
      if (sees) p = left_operand<Once>(memory.p, 16 * warp, depth, lane);
#pragma unroll
      for (int m = 0; m < state_tiles; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const Place place = a_place_of_tf32(lane, i);
          const int row = depth + place.column;
          keys[m].set(i, memory.left[here][row] *
                             memory.k[here][row][16 * (warp * state_tiles + m) + place.row]);
        }
#pragma unroll
      for (int n = 0; n < column_tiles; ++n) {
        const auto b = right_operand<Once>(memory.news, depth, 8 * n, lane);
        if (sees) multiply_into<Once>(results[n], p, b);
#pragma unroll
        for (int m = 0; m < state_tiles; ++m) multiply_into<Once>(state[m][n], keys[m], b);
      }
    }
#pragma unroll
    for (int n = 0; n < column_tiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Place place = d_place(lane, i);
        const int row = 16 * warp + place.row, column = 8 * n + place.column;
        if (row < chunk.num_rows && column < columns)
          args.out.row(chunk.first_row + row)[first_value + column] =
              args.skip != nullptr ? fmaf(skip, values[n][i], results[n][i]) : results[n][i];
      }
    __syncthreads();
    copy_p(number + 1);
  }
  for_each_of_state([&](int row, int column, int m, int n, int i) {
    if (row < args.key_dim && column < columns)
      there[row * args.value_dim + column] = state[m][n][i];
  });
}

}  // namespace pecia::kernels::cuda
