// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Tiles in plain C++ that do what the instructions of AMX do, bit by bit. This is what Intel's
/// manual says of TDPBF16PS (Software Developer's Manual, volume 2, "Operation"). Every addition
/// and fused multiply-add rounds to nearest, ties to even. Denormal operands count as zero, and
/// denormal results become zero.
///
///     for each row m of the sum and each column n:
///       even = odd = 0
///       for k in 0 … 15:
///         even = fma(a[m, 2k],     b[k, 2n],     even)
///         odd  = fma(a[m, 2k + 1], b[k, 2n + 1], odd)
///       sum[m, n] = sum[m, n] + (even + odd)
///
/// So a sum over more than 32 elements is a chain of the sums over 32 each. The bits of NaN are not
/// those of the instructions.

#include <cstdint>

namespace pecia::kernels::cpu {

namespace twin {
void begin();
void end();
void load(int tile, const void* from, int64_t stride_bytes);
void store(int tile, void* to, int64_t stride_bytes);
void zero(int tile);
void multiply(int sum, int a, int b);
}  // namespace twin

/// Does what AmxTiles does. Each thread has tiles of its own. Throws InvalidArgument where a thread
/// uses tiles without `begin`, begins twice or ends twice. Requires FMA.
struct TwinTiles {
  static void begin() { twin::begin(); }
  static void end() { twin::end(); }
  template <int kTile>
  static void load(const void* from, int64_t stride_bytes) {
    twin::load(kTile, from, stride_bytes);
  }
  template <int kTile>
  static void store(void* to, int64_t stride_bytes) {
    twin::store(kTile, to, stride_bytes);
  }
  template <int kTile>
  static void zero() {
    twin::zero(kTile);
  }
  template <int kSum, int kA, int kB>
  static void multiply() {
    twin::multiply(kSum, kA, kB);
  }
};

}  // namespace pecia::kernels::cpu
