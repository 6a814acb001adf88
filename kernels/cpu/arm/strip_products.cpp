// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/strip_products.hpp"

#include "kernels/cpu/arm/vectors.hpp"

namespace pecia::kernels::cpu {
namespace {

// Eight rows and eight lanes: 16 sums, and their operands.
constexpr int row_pairs = 4;
constexpr int64_t block_rows = 2 * row_pairs, block_lanes = 8;
using StripSums = BlockSums<row_pairs, 2>;

/// sums[row, lane] += Σ_i a[row, 2i … 2i + 1] · lanes[i, lane] for `pairs` pairs, a multiple of four.
template <int kHalves>
[[gnu::always_inline]] PECIA_BF16_CODE inline void multiply_pairs(const uint16_t* a,
                                                                  int64_t a_stride,
                                                                  const uint16_t* lanes,
                                                                  int64_t pairs, StripSums& sums) {
  constexpr int64_t pair_stride = kHalves * half_lanes * 2;
  for (int64_t i = 0; i < pairs; i += 4, a += 8, lanes += 4 * pair_stride) {
    bfloat16x8_t rows[2][row_pairs];
#pragma GCC unroll 4
    for (int p = 0; p < row_pairs; ++p) {
      const RowPair pair(load8(a + 2 * p * a_stride), load8(a + (2 * p + 1) * a_stride));
      rows[0][p] = pair.first, rows[1][p] = pair.second;
    }
#pragma GCC unroll 2
    for (int step = 0; step < 2; ++step)
#pragma GCC unroll 2
      for (int q = 0; q < 2; ++q) {
        const uint16_t* const at = lanes + 2 * step * pair_stride + 8 * q;
        const ColumnPairs columns(load8(at), load8(at + pair_stride));
#pragma GCC unroll 4
        for (int p = 0; p < row_pairs; ++p) {
          sums.add(p, 2 * q, rows[step][p], columns.low);
          sums.add(p, 2 * q + 1, rows[step][p], columns.high);
        }
      }
  }
}

}  // namespace

template <int kHalves>
PECIA_BF16_CODE void VectorProducts::multiply(const MultiplyChunk& args) {
  constexpr int64_t lanes = kHalves * half_lanes;
  for (int64_t key = 0; key < chunk_keys; key += block_rows)
    for (int64_t lane = 0; lane < lanes; lane += block_lanes) {
      StripSums sums;
      sums.set_zero();
      multiply_pairs<kHalves>(args.keys + key * args.key_stride, args.key_stride,
                              args.queries + 2 * lane, args.dims / 2, sums);
      sums.store(args.scores + key * lanes + lane, lanes, block_rows);
    }
}

template <int kHalves>
PECIA_BF16_CODE void VectorProducts::add(const AddChunks& args) {
  constexpr int64_t lanes = kHalves * half_lanes, weights_of_chunk = chunk_keys * lanes;
  for (int64_t d = 0; d < args.dims; d += block_rows)
    for (int64_t lane = 0; lane < lanes; lane += block_lanes) {
      float* const out = args.out + d * lanes + lane;
      StripSums sums;
      sums.load(out, lanes, block_rows);
      for (int64_t chunk = 0; chunk < args.chunks; ++chunk)
        multiply_pairs<kHalves>(args.values + (chunk * args.dims + d) * chunk_keys, chunk_keys,
                                args.weights + chunk * weights_of_chunk + 2 * lane, chunk_keys / 2,
                                sums);
      sums.store(out, lanes, block_rows);
    }
}

template void VectorProducts::multiply<1>(const MultiplyChunk&);
template void VectorProducts::multiply<2>(const MultiplyChunk&);
template void VectorProducts::add<1>(const AddChunks&);
template void VectorProducts::add<2>(const AddChunks&);

}  // namespace pecia::kernels::cpu
