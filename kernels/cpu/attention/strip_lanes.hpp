// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The steps of a strip that are no products (StripSteps says what they do).

#include "kernels/cpu/attention/strip.hpp"

namespace pecia::kernels::cpu {

/// By AVX-512. Requires has_native_bf16().
struct VectorLanes {
  static void pack_values(const PackValues& args);
  template <int kHalves>
  static void pack(const PackQueries& args);
  template <int kHalves>
  static void see(const Positions& positions, Visible& visible);
  template <int kHalves>
  static void find_highest(const ChunkScores& chunk, float* highest);
  template <int kHalves>
  static void raise(const float* highest, uint32_t lanes, const StripRows& rows);
  template <int kHalves>
  static uint32_t weigh(const ChunkScores& chunk, const float* maxima, uint16_t* weights,
                        float* sums);
  template <int kHalves>
  static void write(const StripRows& rows, const RowsOfLanes& to);
  template <int kHalves>
  static void read(const StripRows& rows, const RowsOfLanes& from);
};

/// In plain C++, with the same bits.
struct PlainLanes {
  static void pack_values(const PackValues& args);
  template <int kHalves>
  static void pack(const PackQueries& args);
  template <int kHalves>
  static void see(const Positions& positions, Visible& visible);
  template <int kHalves>
  static void find_highest(const ChunkScores& chunk, float* highest);
  template <int kHalves>
  static void raise(const float* highest, uint32_t lanes, const StripRows& rows);
  template <int kHalves>
  static uint32_t weigh(const ChunkScores& chunk, const float* maxima, uint16_t* weights,
                        float* sums);
  template <int kHalves>
  static void write(const StripRows& rows, const RowsOfLanes& to);
  template <int kHalves>
  static void read(const StripRows& rows, const RowsOfLanes& from);
};

}  // namespace pecia::kernels::cpu
