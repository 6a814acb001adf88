// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The products of compute capability 9.0, one function for each instruction (instructions.cuh). A
/// warpgroup is four warps that follow each other, from a multiple of four on. All of its threads call
/// these functions together. Products run while the threads go on: registers and shared memory that
/// belong to one may not be touched until it has been waited for.
///
/// Warp w of the warpgroup has rows 16 w … 16 w + 15 of d and of `a` in registers. In each 16 × 8 of
/// these, a lane has what it has in a product of a warp (fragments.hpp).

#include "kernels/cuda/shared/instructions.cuh"
#include "kernels/cuda/shared/wgmma.hpp"

namespace pecia::kernels::cuda {

inline constexpr int warpgroup_threads = 128;

}  // namespace pecia::kernels::cuda

#ifdef __CUDACC__
#include <cute/arch/mma_sm90_gmma.hpp>
#include <utility>

namespace pecia::kernels::cuda {

template <typename T, int N>
struct WgmmaOf;
#define PECIA_WGMMA_OF(TYPE, NAME, N)                                                            \
  template <>                                                                                    \
  struct WgmmaOf<TYPE, N> {                                                                      \
    using Shared = cute::SM90::GMMA::MMA_64x##N##x16_F32##NAME##_SS<cute::SM90::GMMA::Major::K,  \
                                                                    cute::SM90::GMMA::Major::K>; \
    using Registers =                                                                            \
        cute::SM90::GMMA::MMA_64x##N##x16_F32##NAME##_RS<cute::SM90::GMMA::Major::K,             \
                                                         cute::SM90::GMMA::Major::MN>;           \
  }
PECIA_WGMMA_OF(Bf16, BF16BF16, 64);
PECIA_WGMMA_OF(Bf16, BF16BF16, 96);
PECIA_WGMMA_OF(Bf16, BF16BF16, 128);
PECIA_WGMMA_OF(Bf16, BF16BF16, 256);
PECIA_WGMMA_OF(Fp16, F16F16, 64);
PECIA_WGMMA_OF(Fp16, F16F16, 96);
PECIA_WGMMA_OF(Fp16, F16F16, 128);
PECIA_WGMMA_OF(Fp16, F16F16, 256);
#undef PECIA_WGMMA_OF

template <typename T, int N, size_t... I>
__device__ __forceinline__ void wgmma_shared_of(float (&d)[N / 2], uint64_t a, uint64_t b,
                                                bool adds, std::index_sequence<I...>) {
  using cute::SM90::GMMA::ScaleOut;
  WgmmaOf<T, N>::Shared::fma(a, b, d[I]..., adds ? ScaleOut::One : ScaleOut::Zero);
}
template <typename T, int N, size_t... I>
__device__ __forceinline__ void wgmma_registers_of(float (&d)[N / 2], const uint32_t (&a)[4],
                                                   uint64_t b, std::index_sequence<I...>) {
  WgmmaOf<T, N>::Registers::fma(a[0], a[1], a[2], a[3], b, d[I]...,
                                cute::SM90::GMMA::ScaleOut::One);
}

/// d[64×N] = a[64×16] · b[N×16]ᵀ, or += where it `adds`. Descriptors are those of
/// SwizzledMatrix::along_columns.
template <typename T, int N>
__device__ __forceinline__ void wgmma_shared(float (&d)[N / 2], uint64_t a, uint64_t b, bool adds) {
  wgmma_shared_of<T, N>(d, a, b, adds, std::make_index_sequence<N / 2>());
}
/// d[64×N] += a[64×16] · b[16×N], with `a` in registers and b of SwizzledMatrix::along_rows.
template <typename T, int N>
__device__ __forceinline__ void wgmma_registers(float (&d)[N / 2], const uint32_t (&a)[4],
                                                uint64_t b) {
  wgmma_registers_of<T, N>(d, a, b, std::make_index_sequence<N / 2>());
}

/// Call it before the first product, and after registers of one were changed.
__device__ __forceinline__ void wgmma_fence() {
  cute::warpgroup_arrive();
}
/// Ends a group of products.
__device__ __forceinline__ void wgmma_commit() {
  cute::warpgroup_commit_batch();
}
/// Waits until at most `Pending` groups are under way.
template <int Pending>
__device__ __forceinline__ void wgmma_wait() {
  cute::warpgroup_wait<Pending>();
}
/// Keeps the compiler from moving what it does with the registers across this place.
template <int Count>
__device__ __forceinline__ void hold_in_place(float (&registers)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}
/// Keeps ptxas from moving what computes `value`, which is never below 0, behind this place: it moves
/// all but what a branch needs, also beyond waits, and then nothing runs beside the products.
__device__ __forceinline__ void finish_first(float value) {
  if (value < 0) __trap();
}
/// Call it between writing to shared memory, or waiting for copies to it, and the barrier after which
/// products read it: they read it by another way than threads do.
__device__ __forceinline__ void let_products_see_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace pecia::kernels::cuda

#endif  // __CUDACC__
