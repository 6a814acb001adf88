// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Experts of bf16 or of codes for many rows each: products in shared memory by tensor cores. Codes
/// are widened to bf16 on their way there.

#include "kernels/cuda/experts/expert_groups.cuh"
#include "kernels/cuda/linear/gated_products.cuh"
#include "kernels/cuda/linear/tile_block.cuh"

namespace pecia::kernels::cuda {

/// A row of a weight.
struct WeightRow {
  const QuantizedMatrix& matrix;
  int64_t row;
};

/// Computes sums[t][c] = Σ_i x[t, i] · number[c, i] of the rows and columns of a tile, as Block cuts
/// them. `row_of_x(t)` and `weight_of(c)` are rows that exist, aligned to 16 bytes; what they have not
/// to do with is computed in vain. All have `depth` numbers, a multiple of 8, in stretches of the
/// codes: stage s takes four runs of a stretch, so each stage has whole chunks of codes, and x is
/// copied in the order of the runs. `stages` is shared memory of Block::shared_bytes.
template <typename Codes, typename Block, typename RowOfX, typename WeightOf>
__device__ __forceinline__ void multiply_tile(
    const RowOfX& row_of_x, const WeightOf& weight_of, int depth, Bf16* stages,
    float (&sums)[Block::row_tiles][2 * Block::column_pairs][4]) {
  constexpr int runs = Block::depth / run_numbers;  // of a row in a stage
  // bf16 may have several stretches in a stage, in their order.
  constexpr int stretch = Codes::numbers < Block::depth ? Block::depth : Codes::numbers;
  constexpr int stages_of_stretch = stretch / Block::depth;
  constexpr int chunks_of_stage = runs / Codes::runs;
  constexpr bool copies = std::is_same_v<Codes, Bf16Rows>;
  static_assert(Block::threads % runs == 0 && runs % Codes::runs == 0);
  static_assert(copies || Block::columns == Block::threads, "a thread widens a column");

  // What this thread copies: run `own_run` of every `step`-th row.
  constexpr int step = Block::threads / runs;
  constexpr int x_copies = Block::rows / step, weight_copies = Block::columns / step;
  const int own_run = threadIdx.x % runs, own_row = threadIdx.x / runs;
  const auto place_of = [&](int row, int run) { return row * Block::stride + run * run_numbers; };
  const auto first_number = [&](int stage, int run) {
    const int of_stretch = stage % stages_of_stretch * runs + run;
    return stage / stages_of_stretch * stretch +
           Codes::first_of(of_stretch / Codes::runs, of_stretch % Codes::runs);
  };
  const Bf16* x_rows[x_copies];
#pragma unroll
  for (int i = 0; i < x_copies; ++i) x_rows[i] = row_of_x(own_row + i * step);
  const Bf16* weight_rows[copies ? weight_copies : 1];
  if constexpr (copies) {
#pragma unroll
    for (int i = 0; i < weight_copies; ++i) {
      const WeightRow from = weight_of(own_row + i * step);
      weight_rows[i] = reinterpret_cast<const Bf16*>(from.matrix.rows.row(from.row));
    }
  }
  const int num_stages = (depth + stretch - 1) / stretch * stages_of_stretch;
  const auto copy_stage = [&](int stage) {
    Bf16* const to = stages + stage % Block::stages * Block::stage_elements;
    const int begin = first_number(stage, own_run);
    const bool exists = stage < num_stages && begin < depth;
    const int from = exists ? begin : 0;
    if (stage < num_stages) {
#pragma unroll
      for (int i = 0; i < x_copies; ++i)
        copy_16_async(to + place_of(own_row + i * step, own_run), x_rows[i] + from, exists);
      if constexpr (copies) {
#pragma unroll
        for (int i = 0; i < weight_copies; ++i)
          copy_16_async(to + place_of(Block::rows + own_row + i * step, own_run),
                        weight_rows[i] + from, exists);
      }
    }
    commit_copies();
  };

  // Codes pass through registers, one stage ahead of their place.
  struct Loaded {
    Chunk chunks[copies ? 1 : chunks_of_stage];
    int scales[copies ? 1 : chunks_of_stage];
    Affine affine[Codes::in_groups ? runs : 1];
  };
  Loaded loaded{};
  const auto load_codes = [&](int stage) {
    if (copies || stage >= num_stages) return;
    const WeightRow from = weight_of(threadIdx.x);
    const CodeRows& rows = from.matrix.rows;
    const CodeScales& scales = from.matrix.scales;
    const int first_chunk =
        stage / stages_of_stretch * chunks_of_stretch + stage % stages_of_stretch * chunks_of_stage;
#pragma unroll
    for (int i = 0; i < (copies ? 1 : chunks_of_stage); ++i) {
      loaded.chunks[i] = load_chunk<true>(rows.row(from.row), first_chunk + i, rows.bytes);
      loaded.scales[i] = Codes::chunk_scale(scales, from.row, first_number(stage, i * Codes::runs));
    }
#pragma unroll
    for (int run = 0; run < (Codes::in_groups ? runs : 1); ++run)
      loaded.affine[run] = Codes::affine(scales, from.row, first_number(stage, run));
  };
  const auto store_codes = [&](int stage) {
    if (copies || stage >= num_stages) return;
    Bf16* const to = stages + stage % Block::stages * Block::stage_elements;
#pragma unroll
    for (int run = 0; run < runs; ++run) {
      const int chunk = copies ? 0 : run / Codes::runs;
      Bf16* const place = to + place_of(Block::rows + static_cast<int>(threadIdx.x), run);
      if constexpr (std::is_same_v<Codes, Mxfp4Codes>) {  // whose values are the numbers
        Chunk pairs;
        Codes::values(loaded.chunks[chunk], run % Codes::runs, loaded.scales[chunk], pairs.words);
        *reinterpret_cast<Chunk*>(place) = pairs;
      } else {
        float numbers[run_numbers];
        load_numbers<Codes>(loaded.chunks[chunk], run % Codes::runs, loaded.scales[chunk],
                            loaded.affine[Codes::in_groups ? run : 0], numbers);
        store<run_numbers>(numbers, place);
      }
    }
  };

  load_codes(0);
#pragma unroll
  for (int stage = 0; stage < Block::stages - 1; ++stage) {
    copy_stage(stage);
    store_codes(stage);
    load_codes(stage + 1);
  }
  for (int stage = 0; stage < num_stages; ++stage) {
    wait_for_copies<Block::stages - 2>();
    __syncthreads();
    copy_stage(stage + Block::stages - 1);  // over the stage before, which all have left
    multiply_stage<Bf16, Block>(stages + stage % Block::stages * Block::stage_elements,
                                Block::depth, sums);
    store_codes(stage + Block::stages - 1);
    load_codes(stage + Block::stages);
  }
  wait_for_copies<0>();
}

/// The first row and column of this thread's warp in a tile.
template <typename Block>
__device__ __forceinline__ Place place_of_warp() {
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
  return {16 * Block::row_tiles * (warp / Block::warps_n),
          16 * Block::column_pairs * (warp % Block::warps_n)};
}

/// out[i, :] = activation(gate_e · x, up_e · x) of the row and the expert of pair order[i], both
/// times input_factor. Half of a warp's columns are of gate, the others the same of up. x, `out` and the matrices have rows at
/// multiples of 16 bytes, and multiples of 8 columns. Grid: (columns of out / (Block::columns / 2),
/// rounded up; groups of at most Block::rows pairs). Shared memory: Block::shared_bytes.
template <typename Codes, typename Block>
__global__ void __launch_bounds__(Block::threads, 256 / Block::threads)
    expert_gate_tiles_kernel(Matrix<const Bf16> x, int64_t k, const GateAndUp* experts,
                             const ExpertGroup* groups, const int32_t* order, const float* weights,
                             Activation activation, Matrix<Bf16> out) {
  constexpr int of_warp = 8 * Block::column_pairs;  // columns of out
  wait_for_earlier_kernels();
  const ExpertGroup group = groups[blockIdx.y];
  if (group.expert < 0) return;  // the whole block
  const GateAndUp& expert = experts[group.expert];
  const int64_t first_column = int64_t{blockIdx.x} * (Block::columns / 2);
  const int last = group.end - group.begin - 1;
  float sums[Block::row_tiles][2 * Block::column_pairs][4] = {};
  multiply_tile<Codes, Block>(
      [&](int t) { return x.row(order[group.begin + (t < last ? t : last)] / k); },
      [&](int c) {
        const int64_t column = first_column + c / (2 * of_warp) * of_warp + c % of_warp;
        return WeightRow{c % (2 * of_warp) < of_warp ? expert.gate : expert.up,
                         column < out.columns ? column : out.columns - 1};
      },
      static_cast<int>(x.columns), reinterpret_cast<Bf16*>(dynamic_shared()), sums);
  // Each warp passes 16 rows at a time through memory of its own, so that lanes write neighbours.
  constexpr int stride = 2 * of_warp + 4, lanes_of_row = of_warp / 4;
  static_assert(Block::threads / warp_size * 16 * stride * sizeof(float) <= Block::shared_bytes);
  const int lane = threadIdx.x % warp_size, own_column = 4 * (lane % lanes_of_row);
  const Place warp = place_of_warp<Block>();
  float* const own = reinterpret_cast<float*>(dynamic_shared()) +
                     static_cast<int>(threadIdx.x) / warp_size * 16 * stride;
  const int64_t column = first_column + warp.column / 2 + own_column;
  float gate_bias[4] = {}, up_bias[4] = {};
  if (column < out.columns)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      gate_bias[i] = bias_at(expert.gate.bias, column + i);
      up_bias[i] = bias_at(expert.up.bias, column + i);
    }
  __syncthreads();  // all have left the stages
#pragma unroll
  for (int tile = 0; tile < Block::row_tiles; ++tile) {
#pragma unroll
    for (int block = 0; block < 2 * Block::column_pairs; ++block)
#pragma unroll
      for (int first = 0; first < 4; first += 2) {
        const Place place = d_place(lane, first);
        const float pair[2] = {sums[tile][block][first], sums[tile][block][first + 1]};
        store<2>(pair, own + place.row * stride + 8 * block + place.column);
      }
    __syncwarp();
#pragma unroll 1
    for (int row = lane / lanes_of_row; row < 16; row += warp_size / lanes_of_row) {
      const int t = warp.row + 16 * tile + row;
      if (t > last || column >= out.columns) continue;
      float gates[4], ups[4];
      load<4>(own + row * stride + own_column, gates);
      load<4>(own + row * stride + of_warp + own_column, ups);
      const float factor = input_factor(weights, order[group.begin + t]);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        gates[i] = activated(factor * (gates[i] + gate_bias[i]), factor * (ups[i] + up_bias[i]),
                             activation);
      store<4>(gates, out.row(group.begin + t) + column);
    }
    __syncwarp();
  }
}

/// out[p, :] = down_e · activated[i, :] of the expert of pair p = order[i]. Rows are as above. Grid:
/// (columns of out / Block::columns, rounded up; groups of at most Block::rows pairs). Shared memory:
/// Block::shared_bytes.
template <typename Codes, typename Block>
__global__ void __launch_bounds__(Block::threads, 256 / Block::threads)
    expert_down_tiles_kernel(Matrix<const Bf16> activated, const QuantizedMatrix* experts,
                             const ExpertGroup* groups, const int32_t* order, Matrix<float> out) {
  wait_for_earlier_kernels();
  const ExpertGroup group = groups[blockIdx.y];
  if (group.expert < 0) return;  // the whole block
  const QuantizedMatrix& expert = experts[group.expert];
  const int64_t first_column = int64_t{blockIdx.x} * Block::columns;
  const int last = group.end - group.begin - 1;
  float sums[Block::row_tiles][2 * Block::column_pairs][4] = {};
  multiply_tile<Codes, Block>(
      [&](int t) { return activated.row(group.begin + (t < last ? t : last)); },
      [&](int c) {
        const int64_t column = first_column + c;
        return WeightRow{expert, column < out.columns ? column : out.columns - 1};
      },
      static_cast<int>(activated.columns), reinterpret_cast<Bf16*>(dynamic_shared()), sums);
  const int lane = threadIdx.x % warp_size;
  const Place warp = place_of_warp<Block>();
  float* rows[2 * Block::row_tiles];
#pragma unroll
  for (int i = 0; i < 2 * Block::row_tiles; ++i) {
    const int t = warp.row + 8 * i + d_place(lane, 0).row;
    rows[i] = t <= last ? out.row(order[group.begin + t]) : nullptr;
  }
#pragma unroll
  for (int block = 0; block < 2 * Block::column_pairs; ++block) {
    const int64_t column = first_column + warp.column + 8 * block + d_place(lane, 0).column;
    if (column >= out.columns) continue;
    const float bias[2] = {bias_at(expert.bias, column), bias_at(expert.bias, column + 1)};
#pragma unroll
    for (int i = 0; i < 2 * Block::row_tiles; ++i) {
      const float(&own)[4] = sums[i / 2][block];
      const float pair[2] = {own[i % 2 * 2] + bias[0], own[i % 2 * 2 + 1] + bias[1]};
      if (rows[i] != nullptr) store<2>(pair, rows[i] + column);
    }
  }
}

}  // namespace pecia::kernels::cuda
