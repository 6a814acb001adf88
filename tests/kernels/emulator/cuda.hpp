// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The part of CUDA that kernels/cuda uses, on the CPU: included before a .cu file, it makes g++
/// compile it, and its kernels run one block after the other, each thread a fiber. So every index,
/// mask, barrier and matrix fragment of the kernels is tested where there is no GPU.
///
/// Threads run in turn from one barrier to the next. What is stricter than a GPU: copies into
/// shared memory arrive only when they are waited for, shared memory begins as NaN, and a barrier
/// that some threads of a warp or a block never reach throws. What is not seen: races between two
/// barriers, and rounding of the approximate instructions.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

#include "kernels/cuda/shared/launch.cuh"
#include "kernels/cuda/shared/stored.hpp"
#include "lib/base/core/error.hpp"
#include "tests/support/late_stream.hpp"

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)

namespace pecia::test::emulator {

struct Index {
  unsigned x = 0, y = 0;
};

/// Of the thread that runs now.
extern Index thread_index, block_index, block_size, grid_size;

/// Runs `kernel` once for each thread of the grid. What one throws is thrown here.
void run(const kernels::cuda::Grid& grid, const std::function<void()>& kernel);

/// Where the environment variable PECIA_KERNEL_LAUNCHES names a file, this process writes a line
/// there for each kernel and size of block: the program's file, the kernel's offset in it (hex),
/// threads, and bytes of dynamic shared memory. `pecia_tools.gpu.kernel_table` reads them.
void note_launch(const void* kernel, const kernels::cuda::Grid& grid);

unsigned char* dynamic_shared_memory();
/// The low bits of an address in shared memory, and the other way round; `bytes` that begin at no
/// byte of the block's shared memory throw.
uint32_t shared_address_of(const void* data);
const void* shared_memory_at(uint32_t address, size_t bytes);
void block_barrier();
/// Returns when all lanes of the warp have called it; each has then seen the others' writes to
/// `warp_memory`, 4 KiB shared by the warp.
void warp_barrier();
void* warp_memory();
int lane();

/// Copies that are made when their group is waited for; zeros from nowhere.
void copy_later(void* to, const void* from, size_t bytes);
void end_copy_group();
void finish_copies(int groups_left);

/// The value that lane `source` gives in the same call.
template <typename T>
T exchange(T value, int source) {
  static_assert(sizeof(T) <= 16);
  T* const values = static_cast<T*>(warp_memory());
  values[lane()] = value;
  warp_barrier();
  const T result = values[source];
  warp_barrier();
  return result;
}

}  // namespace pecia::test::emulator

#define threadIdx ::pecia::test::emulator::thread_index
#define blockIdx ::pecia::test::emulator::block_index
#define blockDim ::pecia::test::emulator::block_size
#define gridDim ::pecia::test::emulator::grid_size

inline void __syncthreads() {
  pecia::test::emulator::block_barrier();
}
inline void __threadfence() {}
inline void __syncwarp() {
  pecia::test::emulator::warp_barrier();
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return pecia::test::emulator::exchange(value, pecia::test::emulator::lane() ^ mask);
}
template <typename T>
T __shfl_sync(unsigned, T value, int source) {
  return pecia::test::emulator::exchange(value, source);
}
template <typename T>
T __shfl_up_sync(unsigned, T value, int distance) {
  const int lane = pecia::test::emulator::lane();
  return pecia::test::emulator::exchange(value, lane >= distance ? lane - distance : lane);
}
inline unsigned __ballot_sync(unsigned, bool vote) {
  bool* const votes = static_cast<bool*>(pecia::test::emulator::warp_memory());
  votes[pecia::test::emulator::lane()] = vote;
  pecia::test::emulator::warp_barrier();
  unsigned lanes = 0;
  for (int lane = 0; lane < 32; ++lane) lanes |= unsigned{votes[lane]} << lane;
  pecia::test::emulator::warp_barrier();
  return lanes;
}
inline int __popc(unsigned bits) {
  return __builtin_popcount(bits);
}
template <typename T>
T atomicAdd(T* to, T value) {
  const T before = *to;
  *to += value;
  return before;
}
inline void atomicOr(uint32_t* to, uint32_t bits) {
  *to |= bits;
}
inline void atomicMin(int* to, int value) {
  *to = std::min(*to, value);
}
using std::isfinite;
using std::max;
using std::min;

namespace pecia::kernels::cuda {

inline unsigned char* dynamic_shared() {
  return test::emulator::dynamic_shared_memory();
}

template <typename T>
uint32_t pack(float low, float high) {
  return rounded_to<T>(low).bits | uint32_t{rounded_to<T>(high).bits} << 16;
}

template <typename T>
float half_of(uint32_t packed, int half) {
  return widen(T{static_cast<uint16_t>(packed >> (16 * half))});
}

inline uint32_t select_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t both = a | uint64_t{b} << 32;
  uint32_t selected = 0;
  for (int i = 0; i < 4; ++i)
    selected |= static_cast<uint32_t>(both >> (8 * (selector >> (4 * i) & 7)) & 0xff) << (8 * i);
  return selected;
}
inline uint32_t multiply_pairs(uint32_t a, uint32_t b) {
  return pack<Bf16>(half_of<Bf16>(a, 0) * half_of<Bf16>(b, 0),
                    half_of<Bf16>(a, 1) * half_of<Bf16>(b, 1));
}

inline uint32_t add_pairs(uint32_t a, uint32_t b) {
  return pack<Bf16>(half_of<Bf16>(a, 0) + half_of<Bf16>(b, 0),
                    half_of<Bf16>(a, 1) + half_of<Bf16>(b, 1));
}

/// By the tables of the PTX ISA (mma.m16n8k16): g = lane / 4, t = lane % 4.
template <typename T>
void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  struct Operands {
    float a[16][16], b[16][8];
  };
  auto& shared = *static_cast<Operands*>(test::emulator::warp_memory());
  const int lane = test::emulator::lane(), g = lane / 4, t = lane % 4;
  const uint32_t b[2] = {b0, b1};
  for (int i = 0; i < 8; ++i) {
    const int row = (i < 2 || (4 <= i && i < 6)) ? g : g + 8;
    const int column = i < 4 ? 2 * t + (i & 1) : 2 * t + (i & 1) + 8;
    shared.a[row][column] = half_of<T>(a[i / 2], i & 1);
  }
  for (int i = 0; i < 4; ++i)
    shared.b[i < 2 ? 2 * t + (i & 1) : 2 * t + (i & 1) + 8][g] = half_of<T>(b[i / 2], i & 1);
  test::emulator::warp_barrier();
  for (int i = 0; i < 4; ++i) {
    const int row = i < 2 ? g : g + 8, column = 2 * t + (i & 1);
    for (int k = 0; k < 16; ++k) d[i] += shared.a[row][k] * shared.b[k][column];
  }
  test::emulator::warp_barrier();
}

inline float to_tf32(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return x;
  return std::bit_cast<float>((bits + 0x1000u) & 0xffffe000u);
}

/// By the tables of the PTX ISA (mma.m16n8k8, .tf32).
inline void mma_16x8x8(float (&d)[4], const float (&a)[4], const float (&b)[2]) {
  struct Operands {
    float a[16][8], b[8][8];
  };
  auto& shared = *static_cast<Operands*>(test::emulator::warp_memory());
  const int lane = test::emulator::lane(), g = lane / 4, t = lane % 4;
  for (int i = 0; i < 4; ++i) {
    if (to_tf32(a[i]) != a[i] && a[i] == a[i])
      ::pecia::fail<::pecia::InvalidArgument>("{} is no number of TF32", a[i]);
    shared.a[i % 2 == 0 ? g : g + 8][i < 2 ? t : t + 4] = a[i];
  }
  for (int i = 0; i < 2; ++i) shared.b[t + 4 * i][g] = b[i];
  test::emulator::warp_barrier();
  for (int i = 0; i < 4; ++i) {
    const int row = i < 2 ? g : g + 8, column = 2 * t + (i & 1);
    for (int k = 0; k < 8; ++k) d[i] += shared.a[row][k] * shared.b[k][column];
  }
  test::emulator::warp_barrier();
}

/// Lane l gets elements 2 · (l % 4) and the next of row l / 4 of each matrix; transposed: of column
/// l / 4, rows 2 · (l % 4) and the next.
template <bool Transposed>
void emulate_load_matrices(uint32_t (&r)[4], const void* row) {
  auto* const rows = static_cast<const uint16_t**>(test::emulator::warp_memory());
  const int lane = test::emulator::lane();
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0)
    ::pecia::fail<::pecia::InvalidArgument>("a misaligned row");
  rows[lane] = static_cast<const uint16_t*>(row);
  test::emulator::warp_barrier();
  for (int matrix = 0; matrix < 4; ++matrix) {
    const auto element = [&](int i) {
      const int first = lane / 4, second = 2 * (lane % 4) + i;
      return uint32_t{Transposed ? rows[8 * matrix + second][first]
                                 : rows[8 * matrix + first][second]};
    };
    r[matrix] = element(0) | element(1) << 16;
  }
  test::emulator::warp_barrier();
}
inline void load_matrices(uint32_t (&r)[4], const void* row) {
  emulate_load_matrices<false>(r, row);
}
inline void load_matrices_transposed(uint32_t (&r)[4], const void* row) {
  emulate_load_matrices<true>(r, row);
}

inline void copy_16_async(void* shared, const void* global, bool exists) {
  if (reinterpret_cast<uintptr_t>(shared) % 16 != 0 ||
      reinterpret_cast<uintptr_t>(global) % 16 != 0)
    ::pecia::fail<::pecia::InvalidArgument>("a misaligned copy of 16 bytes");
  test::emulator::copy_later(shared, exists ? global : nullptr, 16);
}
inline void copy_4_async(void* shared, const void* global, bool exists) {
  if (reinterpret_cast<uintptr_t>(shared) % 4 != 0 || reinterpret_cast<uintptr_t>(global) % 4 != 0)
    ::pecia::fail<::pecia::InvalidArgument>("a misaligned copy of 4 bytes");
  test::emulator::copy_later(shared, exists ? global : nullptr, 4);
}
inline void commit_copies() {
  test::emulator::end_copy_group();
}
template <int Pending>
void wait_for_copies() {
  test::emulator::finish_copies(Pending);
}

inline float multiply(float a, float b) {
  return a * b;
}
inline float exp2_fast(float x) {
  return std::exp2(x);
}

template <typename... Params, typename... Args>
void launch(const device::Stream& stream, const Grid& grid, void (*kernel)(Params...),
            Args... args) {
  if (grid.x == 0 || grid.y == 0) return;
  test::emulator::note_launch(reinterpret_cast<const void*>(kernel), grid);
  test::submit(
      stream, [=] { test::emulator::run(grid, [&] { kernel(args...); }); }, kernel, grid.x, grid.y,
      grid.threads, grid.shared_bytes, args...);
}
template <typename... Params, typename... Args>
void launch_early(const device::Stream& stream, const Grid& grid, void (*kernel)(Params...),
                  Args... args) {
  launch(stream, grid, kernel, args...);
}
/// A kernel runs after the one before it.
inline void wait_for_earlier_kernels() {}
inline void let_next_kernel_begin() {}
inline void prefetch(const void*) {}

}  // namespace pecia::kernels::cuda
