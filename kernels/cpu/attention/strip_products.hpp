// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The two products of a strip (strip.hpp): of keys and queries, and of values and weights.

#include <cstdint>

#include "kernels/cpu/attention/strip.hpp"

namespace pecia::kernels::cpu {

/// By the vectors of this architecture. Requires has_native_bf16().
struct VectorProducts {
  static constexpr void begin() {}
  static constexpr void end() {}
  template <int kHalves>
  static void multiply(const MultiplyChunk& args);
  template <int kHalves>
  static void add(const AddChunks& args);
};

/// By tiles (AmxTiles or TwinTiles). Tiles 0 to 3 hold 32 × 32 sums, 4 and 5 rows of keys or values,
/// 6 and 7 the lanes.
template <class Tiles>
struct TileProducts {
  static void begin() { Tiles::begin(); }
  static void end() { Tiles::end(); }

  template <int kHalves>
  static void multiply(const MultiplyChunk& args) {
    constexpr int64_t row_bytes = kHalves * 64;
    const int64_t key_bytes = args.key_stride * static_cast<int64_t>(sizeof(uint16_t));
    Square<kHalves> square{args.scores};
    square.zero();
    for (int64_t d = 0; d < args.dims; d += 32)
      square.multiply(args.keys + d, key_bytes, args.queries + d / 2 * row_bytes / 2);
    square.store();
  }

  template <int kHalves>
  static void add(const AddChunks& args) {
    constexpr int64_t pair_elements = kHalves * half_lanes * 2;
    for (int64_t d = 0; d < args.dims; d += 32) {
      Square<kHalves> square{args.out + d * kHalves * half_lanes};
      square.load();
      for (int64_t chunk = 0; chunk < args.chunks; ++chunk)
        square.multiply(args.values + (chunk * args.dims + d) * chunk_keys, 64,
                        args.weights + chunk * (chunk_keys / 2) * pair_elements);
      square.store();
    }
  }

 private:
  /// 32 rows of sums of all lanes.
  template <int kHalves>
  struct Square {
    static constexpr int64_t row_bytes = kHalves * 64;
    float* sums;
    float* lower() const { return sums + 16 * kHalves * half_lanes; }

    void zero() const {
      Tiles::template zero<0>();
      Tiles::template zero<2>();
      if constexpr (kHalves == 2) {
        Tiles::template zero<1>();
        Tiles::template zero<3>();
      }
    }
    void load() const {
      Tiles::template load<0>(sums, row_bytes);
      Tiles::template load<2>(lower(), row_bytes);
      if constexpr (kHalves == 2) {
        Tiles::template load<1>(sums + half_lanes, row_bytes);
        Tiles::template load<3>(lower() + half_lanes, row_bytes);
      }
    }
    /// Adds 32 rows of 32 elements, `a_bytes` apart, times 32 elements of all lanes.
    void multiply(const uint16_t* a, int64_t a_bytes, const uint16_t* lanes) const {
      Tiles::template load<4>(a, a_bytes);
      Tiles::template load<6>(lanes, row_bytes);
      Tiles::template multiply<0, 4, 6>();
      if constexpr (kHalves == 2) {
        Tiles::template load<7>(lanes + 2 * half_lanes, row_bytes);
        Tiles::template multiply<1, 4, 7>();
      }
      Tiles::template load<5>(a + 16 * (a_bytes / 2), a_bytes);
      Tiles::template multiply<2, 5, 6>();
      if constexpr (kHalves == 2) Tiles::template multiply<3, 5, 7>();
    }
    void store() const {
      Tiles::template store<0>(sums, row_bytes);
      Tiles::template store<2>(lower(), row_bytes);
      if constexpr (kHalves == 2) {
        Tiles::template store<1>(sums + half_lanes, row_bytes);
        Tiles::template store<3>(lower() + half_lanes, row_bytes);
      }
    }
  };
};

}  // namespace pecia::kernels::cpu
