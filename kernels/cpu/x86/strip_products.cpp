// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/strip_products.hpp"

#include <immintrin.h>

#include "kernels/cpu/x86/vectors.hpp"

namespace pecia::kernels::cpu {
namespace {

/// Rows of sums that registers hold at a time, each of all lanes.
template <int kHalves>
constexpr int64_t rows_in_registers = 16 / kHalves;

/// sums[row][half] += Σ_i a[row, 2i … 2i + 1] · lanes[i, half]. Rows of a are `a_stride` elements
/// apart.
template <int kHalves>
PECIA_BF16_CODE inline void multiply_pairs(const uint16_t* a, int64_t a_stride,
                                           const uint16_t* lanes, int64_t pairs,
                                           __m512 (&sums)[rows_in_registers<kHalves>][kHalves]) {
  constexpr int64_t rows = rows_in_registers<kHalves>;
  for (int64_t i = 0; i < pairs; ++i) {
    __m512bh lane[kHalves];
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; ++h)
      lane[h] = load_pairs(lanes + (i * kHalves + h) * 2 * half_lanes);
#pragma GCC unroll 16
    for (int64_t r = 0; r < rows; ++r) {
      const __m512bh pair = spread_pair(a + r * a_stride + 2 * i);
#pragma GCC unroll 2
      for (int h = 0; h < kHalves; ++h) sums[r][h] = _mm512_dpbf16_ps(sums[r][h], lane[h], pair);
    }
  }
}

}  // namespace

template <int kHalves>
PECIA_BF16_CODE void VectorProducts::multiply(const MultiplyChunk& args) {
  constexpr int64_t rows = rows_in_registers<kHalves>;
  for (int64_t key = 0; key < chunk_keys; key += rows) {
    __m512 sums[rows][kHalves];
#pragma GCC unroll 16
    for (auto& row : sums)
#pragma GCC unroll 2
      for (__m512& sum : row) sum = _mm512_setzero_ps();
    multiply_pairs<kHalves>(args.keys + key * args.key_stride, args.key_stride, args.queries,
                            args.dims / 2, sums);
    float* to = args.scores + key * kHalves * half_lanes;
#pragma GCC unroll 16
    for (auto& row : sums)
#pragma GCC unroll 2
      for (__m512& sum : row) {
        _mm512_storeu_ps(to, sum);
        to += half_lanes;
      }
  }
}

template <int kHalves>
PECIA_BF16_CODE void VectorProducts::add(const AddChunks& args) {
  constexpr int64_t rows = rows_in_registers<kHalves>;
  constexpr int64_t weights_of_chunk = chunk_keys * kHalves * half_lanes;
  for (int64_t d = 0; d < args.dims; d += rows) {
    float* const out = args.out + d * kHalves * half_lanes;
    __m512 sums[rows][kHalves];
#pragma GCC unroll 16
    for (int64_t r = 0; r < rows; ++r)
#pragma GCC unroll 2
      for (int h = 0; h < kHalves; ++h)
        sums[r][h] = _mm512_loadu_ps(out + (r * kHalves + h) * half_lanes);
    for (int64_t chunk = 0; chunk < args.chunks; ++chunk)
      multiply_pairs<kHalves>(args.values + (chunk * args.dims + d) * chunk_keys, chunk_keys,
                              args.weights + chunk * weights_of_chunk, chunk_keys / 2, sums);
#pragma GCC unroll 16
    for (int64_t r = 0; r < rows; ++r)
#pragma GCC unroll 2
      for (int h = 0; h < kHalves; ++h)
        _mm512_storeu_ps(out + (r * kHalves + h) * half_lanes, sums[r][h]);
  }
}

template void VectorProducts::multiply<1>(const MultiplyChunk&);
template void VectorProducts::multiply<2>(const MultiplyChunk&);
template void VectorProducts::add<1>(const AddChunks&);
template void VectorProducts::add<2>(const AddChunks&);

}  // namespace pecia::kernels::cpu
