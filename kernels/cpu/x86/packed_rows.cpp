// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/packed_rows.hpp"

#include <immintrin.h>

#include "kernels/cpu/x86/vectors.hpp"

namespace pecia::kernels::cpu {
namespace {

/// Elements [begin, begin + 32) of a row; zeros where there are none.
PECIA_BF16_CODE __m512i load_elements(const TensorView& x, int64_t row, int64_t begin) {
  const int64_t count = std::min<int64_t>(bf16_depth, x.size(1) - begin);
  if (x.dtype() == DType::bf16)
    return (__m512i)load_some(static_cast<const uint16_t*>(x.row(row)) + begin, count);
  const float* const from = static_cast<const float*>(x.row(row)) + begin;
  const auto mask = [](int64_t some) {
    return some >= 16 ? __mmask16{0xffff}
                      : static_cast<__mmask16>((1u << std::max<int64_t>(0, some)) - 1);
  };
  const __m512 low = _mm512_maskz_loadu_ps(mask(count), from);
  const __m512 high = _mm512_maskz_loadu_ps(mask(count - 16), from + 16);
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

}  // namespace

PECIA_BF16_CODE void pack_square(const TensorView& x, const RowBlocks& blocks, int64_t block,
                                 int64_t piece, int64_t square, uint16_t* to) {
  const int64_t first_row = block * blocks.block_rows + square * RowBlocks::square_rows;
  const int64_t first = blocks.first_step(piece), end = first + blocks.steps_of(piece);
  for (int64_t step = first; step < end; ++step)
    for (int64_t r = 0; r < RowBlocks::square_rows; ++r, to += bf16_depth) {
      const int64_t row = first_row + r;
      _mm512_storeu_si512(to, row < blocks.rows ? load_elements(x, row, step * bf16_depth)
                                                : _mm512_setzero_si512());
    }
}

PECIA_BF16_CODE void write_square(const float* sums, int64_t rows, int64_t columns, float* y,
                                  int64_t stride, bool streamed) {
  constexpr int64_t width = RowBlocks::square_rows;
  const bool on_lines = (reinterpret_cast<uintptr_t>(y) | stride * sizeof(float)) % 64 == 0;
  if (streamed && on_lines && columns == width) {
    for (int64_t r = 0; r < rows; ++r) {
      _mm512_stream_ps(y + r * stride, _mm512_loadu_ps(sums + r * width));
      _mm512_stream_ps(y + r * stride + 16, _mm512_loadu_ps(sums + r * width + 16));
    }
    return;
  }
  for (int64_t r = 0; r < rows; ++r) std::copy_n(sums + r * width, columns, y + r * stride);
}

void end_of_streamed() {
  _mm_sfence();
}

}  // namespace pecia::kernels::cpu
