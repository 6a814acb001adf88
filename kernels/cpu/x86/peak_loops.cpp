// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/peak_loops.hpp"

#include <random>

#include "kernels/cpu/x86/amx_tiles.hpp"
#include "lib/base/core/dtype.hpp"
#include "lib/base/core/error.hpp"
#include "lib/base/core/isa.hpp"

namespace pecia::kernels::cpu {
namespace {

// The vector loops keep 14 sums in registers 0 to 13 and their operands in 14 and 15: two units
// with a latency of 4 to 6 cycles need 8 to 12 sums.
constexpr int num_sums = 14;
constexpr int fp32_of_ymm = 8, fp32_of_zmm = 16;

#define PECIA_VECTOR_REGISTERS                                                             \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
      "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"
#define PECIA_EACH_SUM ".irp sum,0,1,2,3,4,5,6,7,8,9,10,11,12,13\n"

/// Random numbers in (−1, 1), as products in use have: with constants the loops of AMX run 20 to 25 %
/// faster (measured). Sums stay normal numbers however long a loop runs, since they stop growing when
/// a product is below their last bit.
struct Operands {
  static constexpr int64_t count = 16 * 32;  // of a tile
  alignas(64) uint16_t a[count], b[count];
  alignas(64) float wide_a[fp32_of_zmm], wide_b[fp32_of_zmm];

  Operands() {
    std::mt19937 random(1);
    std::uniform_real_distribution<float> number(-1.0f, 1.0f);
    for (auto* const numbers : {a, b})
      for (int64_t i = 0; i < count; ++i) numbers[i] = float_to_bf16(number(random));
    for (auto* const numbers : {wide_a, wide_b})
      for (int64_t i = 0; i < fp32_of_zmm; ++i) numbers[i] = number(random);
  }
};

const Operands& random_operands() {
  static const Operands made;
  return made;
}

void fma_avx2(int64_t rounds) {
  asm volatile(
      "vmovaps (%[a]), %%ymm14\n"
      "vmovaps (%[b]), %%ymm15\n" PECIA_EACH_SUM
      "vxorps %%ymm\\sum, %%ymm\\sum, %%ymm\\sum\n.endr\n"
      "1:\n" PECIA_EACH_SUM
      "vfmadd231ps %%ymm14, %%ymm15, %%ymm\\sum\n.endr\n"
      "dec %[rounds]\n"
      "jnz 1b\n"
      "vzeroupper\n"
      : [rounds] "+r"(rounds)
      : [a] "r"(random_operands().wide_a), [b] "r"(random_operands().wide_b)
      : "cc", "memory", PECIA_VECTOR_REGISTERS);
}

void fma_avx512(int64_t rounds) {
  asm volatile(
      "vmovaps (%[a]), %%zmm14\n"
      "vmovaps (%[b]), %%zmm15\n" PECIA_EACH_SUM
      "vpxord %%zmm\\sum, %%zmm\\sum, %%zmm\\sum\n.endr\n"
      "1:\n" PECIA_EACH_SUM
      "vfmadd231ps %%zmm14, %%zmm15, %%zmm\\sum\n.endr\n"
      "dec %[rounds]\n"
      "jnz 1b\n"
      "vzeroupper\n"
      : [rounds] "+r"(rounds)
      : [a] "r"(random_operands().wide_a), [b] "r"(random_operands().wide_b)
      : "cc", "memory", PECIA_VECTOR_REGISTERS);
}

void dot_avx512_bf16(int64_t rounds) {
  asm volatile(
      "vmovaps (%[a]), %%zmm14\n"
      "vmovaps (%[b]), %%zmm15\n" PECIA_EACH_SUM
      "vpxord %%zmm\\sum, %%zmm\\sum, %%zmm\\sum\n.endr\n"
      "1:\n" PECIA_EACH_SUM
      "vdpbf16ps %%zmm14, %%zmm15, %%zmm\\sum\n.endr\n"
      "dec %[rounds]\n"
      "jnz 1b\n"
      "vzeroupper\n"
      : [rounds] "+r"(rounds)
      : [a] "r"(random_operands().a), [b] "r"(random_operands().b)
      : "cc", "memory", PECIA_VECTOR_REGISTERS);
}

// Six sums of 16 × 16 and two operands, 16 × 32 numbers of bf16 each, fill the eight tiles. A
// product is given every 16 cycles and takes 52.
constexpr int num_tile_sums = 6;
constexpr double flops_of_tile = 2.0 * 16 * 16 * 32;

void dot_amx(int64_t rounds) {
  static constexpr TileConfig config;
  constexpr int64_t stride_bytes = 64;
  asm volatile(
      "ldtilecfg %[config]\n"
      "tileloadd (%[a],%[stride],1), %%tmm6\n"
      "tileloadd (%[b],%[stride],1), %%tmm7\n"
      ".irp sum,0,1,2,3,4,5\ntilezero %%tmm\\sum\n.endr\n"
      "1:\n"
      ".irp sum,0,1,2,3,4,5\ntdpbf16ps %%tmm7, %%tmm6, %%tmm\\sum\n.endr\n"
      "dec %[rounds]\n"
      "jnz 1b\n"
      "tilerelease\n"
      : [rounds] "+r"(rounds)
      : [config] "m"(config), [a] "r"(random_operands().a), [b] "r"(random_operands().b),
        [stride] "r"(stride_bytes)
      : "cc", "memory");
}

}  // namespace

std::vector<PeakLoop> peak_loops(DType operands) {
  if (operands == DType::fp32)
    return {
        {"AVX2 VFMADD231PS", "", 2.0 * num_sums * fp32_of_ymm, fma_avx2},
        {"AVX-512 VFMADD231PS", why_not(Isa::avx512), 2.0 * num_sums * fp32_of_zmm, fma_avx512}};
  if (operands == DType::bf16)
    return {{"AVX-512 VDPBF16PS", why_not(Isa::avx512_bf16), 4.0 * num_sums * fp32_of_zmm,
             dot_avx512_bf16},
            {"AMX TDPBF16PS", why_no_amx(), num_tile_sums * flops_of_tile, dot_amx}};
  fail<Unsupported>("no instructions of the CPU multiply {}", name_of(operands));
}

void read_memory(const std::byte* data, int64_t bytes) {
  constexpr int64_t step_bytes = 256;
  PECIA_CHECK(bytes % step_bytes == 0 && bytes > 0, "{} bytes to read", bytes);
  const std::byte* const end = data + bytes;
  asm volatile(
      "1:\n"
      ".irp line,0,1,2,3,4,5,6,7\nvmovaps 32*\\line(%[data]), %%ymm\\line\n.endr\n"
      "add $256, %[data]\n"
      "cmp %[end], %[data]\n"
      "jb 1b\n"
      "vzeroupper\n"
      : [data] "+r"(data)
      : [end] "r"(end)
      : "cc", "memory", PECIA_VECTOR_REGISTERS);
}

}  // namespace pecia::kernels::cpu
