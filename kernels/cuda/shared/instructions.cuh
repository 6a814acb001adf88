// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The instructions that kernels use beyond C++, one function each. Tests that run kernels on the
/// CPU include an emulator of them first (tests/kernels/emulator/cuda.hpp).

#include <cstdint>

#include "kernels/cuda/shared/stored.hpp"

#ifdef __CUDACC__

namespace pecia::kernels::cuda {

/// Returns the block's dynamic shared memory.
__device__ __forceinline__ unsigned char* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char pecia_shared[];
  return pecia_shared;
}

__device__ __forceinline__ uint32_t shared_address(const void* data) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(data));
}

/// Waits until the kernels before this one have ended and what they wrote is seen, where this one
/// was launched before that (launch_early). Until then it may only read what no kernel writes.
__device__ __forceinline__ void wait_for_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// Lets the next kernel begin where it was launched early, once all blocks of this one have said so
/// or ended. Short kernels say so when they have waited, long ones when they have read their weights
/// or keys: sooner, waiting blocks took room from theirs, and a step of 16 rows took 12 % longer on
/// an H100. Weights and keys are not prefetched before: with that, it took 5 % longer on an H200.
__device__ __forceinline__ void let_next_kernel_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Asks for the cache line of an address, which the L2 cache will have soon. It reads nothing, so it
/// may stand before wait_for_earlier_kernels.
__device__ __forceinline__ void prefetch(const void* global) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
}

/// Packs two values into one register, with `low` in the lower half.
template <typename T>
__device__ __forceinline__ uint32_t pack(float low, float high) {
  uint32_t packed;
  if constexpr (std::is_same_v<T, Bf16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

/// Selects bytes of a (0 … 3) and b (4 … 7). The digits of `selector` name them from the lowest up.
__device__ __forceinline__ uint32_t select_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  return __byte_perm(a, b, selector);
}

/// Returns both bf16 products of two pairs. They are exact if bf16 can hold them. Subnormals count.
__device__ __forceinline__ uint32_t multiply_pairs(uint32_t a, uint32_t b) {
  uint32_t product;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
  return product;
}

/// Returns both bf16 sums of two pairs, rounded.
__device__ __forceinline__ uint32_t add_pairs(uint32_t a, uint32_t b) {
  uint32_t sum;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(0x3f803f80u), "r"(b));
  return sum;
}

/// d += a · b of 16×16 by 16×8. fragments.hpp says which lane holds what.
template <typename T>
__device__ __forceinline__ void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                            uint32_t b1) {
  if constexpr (std::is_same_v<T, Bf16>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Returns x rounded to TF32: 10 bits after the point, halves away from zero.
__device__ __forceinline__ float to_tf32(float x) {
  uint32_t rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
  return __uint_as_float(rounded);
}

/// d += a · b of 16×8 by 8×8 numbers of TF32. fragments.hpp says which lane holds what.
__device__ __forceinline__ void mma_16x8x8(float (&d)[4], const float (&a)[4],
                                           const float (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
        "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}

/// Loads four 8×8 matrices of 2-byte elements from shared memory. Lane l gives the address of row
/// l % 8 of matrix l / 8. The row has 16 bytes and is aligned to 16.
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

/// Does the same, but transposes each matrix.
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

/// Copies 16 bytes from global to shared memory while the thread goes on. If not `exists`, it
/// writes zeros and reads nothing.
__device__ __forceinline__ void copy_16_async(void* shared, const void* global, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(global), "r"(exists ? 16 : 0)
               : "memory");
}
/// Does the same for 4 bytes.
__device__ __forceinline__ void copy_4_async(void* shared, const void* global, bool exists) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(shared)),
               "l"(global), "r"(exists ? 4 : 0)
               : "memory");
}
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until at most `Pending` of this thread's committed groups are under way.
template <int Pending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

/// Returns a · b, rounded. The compiler fuses it with no addition, here or there.
__device__ __forceinline__ float multiply(float a, float b) {
  return __fmul_rn(a, b);
}

/// Returns 2^x within 2 units in the last place. It is 0 for −inf, 1 for 0, and NaN for NaN.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace pecia::kernels::cuda

#endif  // __CUDACC__
