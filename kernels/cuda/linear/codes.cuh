// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Weights that are codes (lib/base/core/codes.hpp) as kernels read them.
///
/// A row of codes is read in stretches of 64 bytes. A stretch is four chunks of 16 bytes, one for
/// each lane of four. The numbers of a chunk are runs of 8 neighbours, which are the operands of two
/// products of tensor cores. A number is value · step + least, where the value is exact in bf16.

#include <type_traits>

#include "kernels/cuda/shared/fp8_pairs.cuh"
#include "kernels/cuda/shared/matrix.hpp"

namespace pecia::kernels::cuda {

inline constexpr int chunk_bytes = 16, chunks_of_stretch = 4, run_numbers = 8;

struct alignas(chunk_bytes) Chunk {
  uint32_t words[4];
};

/// Rows of codes, which are `stride` bytes apart. A row has `bytes` bytes for `numbers` numbers.
struct CodeRows {
  const uint8_t* data;
  int64_t rows, numbers, bytes, stride;

  PECIA_HD const uint8_t* row(int64_t index) const { return data + index * stride; }
};

/// What the codes of each row stand for. Number i of a row belongs to scale i >> shift of it, of
/// `count` scales, or of `count` pairs of step and least. Rows are `stride` elements apart. The
/// bits of an fp32 are the factor of all numbers of nvfp4: tables of matrices are compared by bytes.
struct CodeScales {
  const void* data;
  int64_t stride, count;
  int32_t shift;
  uint32_t factor_bits = 0;

  PECIA_HD int64_t index_of(int64_t number) const {
    const int64_t index = number >> shift;
    return index < count ? index : count - 1;
  }
};

struct Affine {
  float step, least;
};

/// Codes of a type have
///
///     runs              runs of a chunk
///     numbers           numbers of a stretch
///     first_of          first number of a run of a chunk, counted from the stretch's first
///     chunk_scale       what `values` has to know of a chunk whose first number is given
///     values            values of a run, in pairs
///     affine            step and least of the number given
///     in_groups         whether step and least change within a row
///     ends_group        whether they may change after a run
struct Int8Codes {
  static constexpr int runs = 2, numbers = 64;
  static constexpr bool in_groups = false, has_least = false;

  PECIA_HD static int first_of(int place, int run) { return 16 * place + run_numbers * run; }
  PECIA_HD static int chunk_scale(const CodeScales&, int64_t, int64_t) { return 0; }
  PECIA_HD static bool ends_group(int, int64_t) { return false; }
  PECIA_HD static Affine affine(const CodeScales& scales, int64_t row, int64_t) {
    return {static_cast<const float*>(scales.data)[row * scales.stride], 0.0f};
  }
  static __device__ __forceinline__ void values(const Chunk& chunk, int run, int,
                                                uint32_t (&pairs)[4]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      // The code plus 128 is the last byte of the fraction of 2²³ and more.
      constexpr uint32_t two_to_23 = 0x4b000000u;
      const uint32_t codes = chunk.words[2 * run + i] ^ 0x80808080u;
      uint32_t wide[4];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        wide[j] = bits_of_float(
            float_of_bits(select_bytes(codes, two_to_23, 0x7440u + static_cast<uint32_t>(j))) -
            8388736.0f);
      pairs[2 * i] = select_bytes(wide[0], wide[1], 0x7632);
      pairs[2 * i + 1] = select_bytes(wide[2], wide[3], 0x7632);
    }
  }
};

/// A stretch is an element of 128 codes.
struct Int4Codes {
  static constexpr int runs = 4, numbers = 128;
  static constexpr bool in_groups = true, has_least = true;

  PECIA_HD static int first_of(int place, int run) { return 32 * run + run_numbers * place; }
  PECIA_HD static int chunk_scale(const CodeScales&, int64_t, int64_t) { return 0; }
  PECIA_HD static bool ends_group(int run, int64_t shift) {
    return (32 * (run + 1) & ((1 << shift) - 1)) == 0;
  }
  PECIA_HD static Affine affine(const CodeScales& scales, int64_t row, int64_t number) {
    const auto* const pair =
        static_cast<const float*>(scales.data) + row * scales.stride + 2 * scales.index_of(number);
    return {pair[0], pair[1]};
  }
  static __device__ __forceinline__ void values(const Chunk& chunk, int run, int,
                                                uint32_t (&pairs)[4]) {
    constexpr uint32_t both_128 = 0x43004300u, both_minus_128 = 0xc300c300u;
#pragma unroll
    for (int i = 0; i < 4; ++i)  // a code is the last bits of the fraction of 128
      pairs[i] = add_pairs((chunk.words[i] >> (4 * run) & 0x000f000fu) | both_128, both_minus_128);
  }
};

/// Eight codes of FP4, times a factor that is given twice as bf16, as pairs i and i + 4. As bits of bf16
/// a code's three last bits stand for 2⁻¹²⁶ of its number.
__device__ __forceinline__ void multiply_fp4(uint32_t word, uint32_t factors,
                                             uint32_t (&apart)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t magnitude = i < 2 ? word << (6 - 4 * i) : word >> (4 * i - 6);
    const uint32_t sign = word << (12 - 4 * i);
    apart[i] = multiply_pairs((magnitude & 0x01c001c0u) | (sign & 0x80008000u), factors);
  }
}

/// Pairs of neighbours out of pairs i and i + 4.
__device__ __forceinline__ void join_pairs(const uint32_t (&apart)[4], uint32_t (&pairs)[4]) {
  pairs[0] = select_bytes(apart[0], apart[1], 0x5410);
  pairs[1] = select_bytes(apart[2], apart[3], 0x5410);
  pairs[2] = select_bytes(apart[0], apart[1], 0x7632);
  pairs[3] = select_bytes(apart[2], apart[3], 0x7632);
}

/// The values are the numbers. A chunk is a block of 32 codes.
struct Mxfp4Codes {
  static constexpr int runs = 4, numbers = 128;
  static constexpr bool in_groups = false, has_least = false;

  PECIA_HD static int first_of(int place, int run) { return 32 * place + run_numbers * run; }
  PECIA_HD static int chunk_scale(const CodeScales& scales, int64_t row, int64_t number) {
    return static_cast<const uint8_t*>(scales.data)[row * scales.stride + scales.index_of(number)];
  }
  PECIA_HD static bool ends_group(int, int64_t) { return false; }
  PECIA_HD static Affine affine(const CodeScales&, int64_t, int64_t) { return {1.0f, 0.0f}; }
  static __device__ __forceinline__ void values(const Chunk& chunk, int run, int scale,
                                                uint32_t (&pairs)[4]) {
    // They are multiplied by 2^(scale − 1), by two factors where bf16 has no such number.
    const uint32_t power = static_cast<uint32_t>((scale < 128 ? scale : 128) + 126) << 7;
    uint32_t apart[4];
    multiply_fp4(chunk.words[run], power * 0x10001u, apart);
    if (scale > 128) {
      const uint32_t rest = scale == 255 ? 0x7fc0u : static_cast<uint32_t>(scale - 1) << 7;
#pragma unroll
      for (int i = 0; i < 4; ++i) apart[i] = multiply_pairs(apart[i], rest * 0x10001u);
    }
    join_pairs(apart, pairs);
  }
};

/// A value is 2⁻⁸ of a code's number times its scale. The matrix's factor is the step. A chunk is two
/// blocks of 16 codes, whose scales are the last byte and the one before it of chunk_scale.
struct Nvfp4Codes {
  static constexpr int runs = 4, numbers = 128;
  static constexpr bool in_groups = false, has_least = false;

  PECIA_HD static int first_of(int place, int run) { return 32 * place + run_numbers * run; }
  PECIA_HD static int chunk_scale(const CodeScales& scales, int64_t row, int64_t number) {
    const auto* const of_row = static_cast<const uint8_t*>(scales.data) + row * scales.stride;
    return of_row[scales.index_of(number)] | of_row[scales.index_of(number + 16)] << 8;
  }
  PECIA_HD static bool ends_group(int, int64_t) { return false; }
  PECIA_HD static Affine affine(const CodeScales& scales, int64_t, int64_t) {
    return {256 * float_of_bits(scales.factor_bits), 0.0f};
  }
  static __device__ __forceinline__ void values(const Chunk& chunk, int run, int scale,
                                                uint32_t (&pairs)[4]) {
    // As bits of bf16 a scale stands for 2⁻¹²⁰ of itself. It becomes 2¹¹⁸ of itself, which bf16 has of
    // all, by 2¹²⁷ and 2¹¹¹.
    const auto code = static_cast<uint32_t>(run < 2 ? scale : scale >> 8);
    const uint32_t bits = (code & 0x80u) << 8 | (code & 0x7fu) << 4;
    const uint32_t factors =
        multiply_pairs(multiply_pairs(bits * 0x10001u, 0x7f007f00u), 0x77007700u);
    uint32_t apart[4];
    multiply_fp4(chunk.words[run], factors, apart);
    join_pairs(apart, pairs);
  }
};

/// Scales are those of rows, or of blocks of a row that are whole stretches.
struct Fp8Codes {
  static constexpr int runs = 2, numbers = 64;
  static constexpr bool in_groups = true, has_least = false;

  PECIA_HD static int first_of(int place, int run) { return 16 * place + run_numbers * run; }
  PECIA_HD static int chunk_scale(const CodeScales&, int64_t, int64_t) { return 0; }
  PECIA_HD static bool ends_group(int run, int64_t) { return run == runs - 1; }
  PECIA_HD static Affine affine(const CodeScales& scales, int64_t row, int64_t number) {
    return {static_cast<const float*>(scales.data)[row * scales.stride + scales.index_of(number)],
            0.0f};
  }
  static __device__ __forceinline__ void values(const Chunk& chunk, int run, int,
                                                uint32_t (&pairs)[4]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      pairs[2 * i] = widen_01(chunk.words[2 * run + i]);
      pairs[2 * i + 1] = widen_23(chunk.words[2 * run + i]);
    }
  }
};

/// Each row has one scale.
struct Fp8RowCodes : Fp8Codes {
  static constexpr bool in_groups = false;
  PECIA_HD static bool ends_group(int, int64_t) { return false; }
};

/// Weights of bf16, which are their own values.
struct Bf16Rows {
  static constexpr int runs = 1, numbers = 32;
  static constexpr bool in_groups = false, has_least = false;

  PECIA_HD static int first_of(int place, int) { return run_numbers * place; }
  PECIA_HD static int chunk_scale(const CodeScales&, int64_t, int64_t) { return 0; }
  PECIA_HD static bool ends_group(int, int64_t) { return false; }
  PECIA_HD static Affine affine(const CodeScales&, int64_t, int64_t) { return {1.0f, 0.0f}; }
  static __device__ __forceinline__ void values(const Chunk& chunk, int, int,
                                                uint32_t (&pairs)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = chunk.words[i];
  }
};

/// Whether 32 warps that multiply such rows with few others have room on a multiprocessor.
template <typename Codes>
inline constexpr bool many_warps_fit =
    std::is_same_v<Codes, Bf16Rows> || std::is_same_v<Codes, Fp8RowCodes>;

/// Chunk `index` of a row, with zeros after its end. With `Aligned`, rows begin at multiples of 16
/// bytes.
template <bool Aligned>
__device__ __forceinline__ Chunk load_chunk(const uint8_t* row, int64_t index, int64_t bytes) {
  const int64_t begin = chunk_bytes * index;
  if (Aligned && begin + chunk_bytes <= bytes) return *reinterpret_cast<const Chunk*>(row + begin);
  Chunk chunk{};
#pragma unroll
  for (int i = 0; i < chunk_bytes; ++i)
    if (begin + i < bytes) chunk.words[i / 4] |= uint32_t{row[begin + i]} << (8 * (i % 4));
  return chunk;
}

/// The eight numbers of a run.
template <typename Codes>
__device__ __forceinline__ void load_numbers(const Chunk& chunk, int run, int scale,
                                             const Affine& affine, float (&to)[run_numbers]) {
  uint32_t pairs[4];
  Codes::values(chunk, run, scale, pairs);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = fmaf(float_of_bits(pairs[i] << 16), affine.step, affine.least);
    to[2 * i + 1] = fmaf(float_of_bits(pairs[i] & 0xffff0000u), affine.step, affine.least);
  }
}

}  // namespace pecia::kernels::cuda
