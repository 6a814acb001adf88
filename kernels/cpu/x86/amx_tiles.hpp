// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The tiles of AMX, by the instructions. Tiles are 16 rows of 64 bytes. `TwinTiles` does the same in
/// plain C++ (twin_tiles.hpp), so a kernel that is written for a type of tiles is tested on any CPU.
///
/// A thread calls `begin` before its first use of tiles and `end` after its last one. Between these
/// two the kernel of the operating system saves 8 KiB with each switch of threads. The instructions
/// are assembly, because a compiler's own functions take no numbers of tiles from templates, and
/// GCC 12 believes that the configuration is read only in part.

#include <cstdint>

namespace pecia::kernels::cpu {

/// The configuration of eight tiles of 16 rows of 64 bytes (palette 1).
struct TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

/// Requires Isa::amx_bf16.
struct AmxTiles {
  static void begin() {
    static constexpr TileConfig config;
    asm volatile("ldtilecfg %[config]" : : [config] "m"(config) : "memory");
  }
  static void end() { asm volatile("tilerelease" : : : "memory"); }

  /// Reads 16 rows of 64 bytes, `stride_bytes` apart.
  template <int kTile>
  static void load(const void* from, int64_t stride_bytes) {
    asm volatile("tileloadd (%[from],%[stride],1), %%tmm%c[tile]"
                 :
                 : [from] "r"(from), [stride] "r"(stride_bytes), [tile] "i"(kTile)
                 : "memory");
  }
  template <int kTile>
  static void store(void* to, int64_t stride_bytes) {
    asm volatile("tilestored %%tmm%c[tile], (%[to],%[stride],1)"
                 :
                 : [to] "r"(to), [stride] "r"(stride_bytes), [tile] "i"(kTile)
                 : "memory");
  }
  template <int kTile>
  static void zero() {
    asm volatile("tilezero %%tmm%c[tile]" : : [tile] "i"(kTile) : "memory");
  }
  /// sum[m, n] += Σ_k a[m, 2k] · b[k, 2n] + a[m, 2k+1] · b[k, 2n+1], as twin_tiles.hpp says.
  template <int kSum, int kA, int kB>
  static void multiply() {
    asm volatile("tdpbf16ps %%tmm%c[b], %%tmm%c[a], %%tmm%c[sum]"
                 :
                 : [b] "i"(kB), [a] "i"(kA), [sum] "i"(kSum)
                 : "memory");
  }
};

}  // namespace pecia::kernels::cpu
