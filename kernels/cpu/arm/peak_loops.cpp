// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/peak_loops.hpp"

#include <random>

#include "lib/base/core/dtype.hpp"
#include "lib/base/core/error.hpp"
#include "lib/base/core/isa.hpp"

namespace pecia::kernels::cpu {
namespace {

// The loops keep 24 sums in registers 0 to 23 and their operands in 30 and 31: four units with a
// latency of 4 to 5 cycles need 16 to 20 sums.
constexpr int num_sums = 24, fp32_of_vector = 4;
constexpr double flops_of_bfmmla = 2.0 * 16;

#define PECIA_VECTOR_REGISTERS                                                                   \
  "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", \
      "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v30", "v31"
#define PECIA_EACH_SUM ".irp sum,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23\n"

/// Random numbers in (−1, 1), as products in use have. Sums stay normal numbers however long a loop
/// runs, since they stop growing when a product is below their last bit.
struct Operands {
  alignas(16) uint16_t a[8], b[8];
  alignas(16) float wide_a[fp32_of_vector], wide_b[fp32_of_vector];

  Operands() {
    std::mt19937 random(1);
    std::uniform_real_distribution<float> number(-1.0f, 1.0f);
    for (auto* const numbers : {a, b})
      for (int i = 0; i < 8; ++i) numbers[i] = float_to_bf16(number(random));
    for (auto* const numbers : {wide_a, wide_b})
      for (int i = 0; i < fp32_of_vector; ++i) numbers[i] = number(random);
  }
};

const Operands& random_operands() {
  static const Operands made;
  return made;
}

void fmla(int64_t rounds) {
  asm volatile(
      "ldr q30, [%[a]]\n"
      "ldr q31, [%[b]]\n" PECIA_EACH_SUM
      "movi v\\sum\\().4s, #0\n.endr\n"
      "1:\n" PECIA_EACH_SUM
      "fmla v\\sum\\().4s, v30.4s, v31.4s\n.endr\n"
      "subs %[rounds], %[rounds], #1\n"
      "b.ne 1b\n"
      : [rounds] "+r"(rounds)
      : [a] "r"(random_operands().wide_a), [b] "r"(random_operands().wide_b)
      : "cc", "memory", PECIA_VECTOR_REGISTERS);
}

void bfmmla(int64_t rounds) {
  asm volatile(
      ".arch_extension bf16\n"
      "ldr q30, [%[a]]\n"
      "ldr q31, [%[b]]\n" PECIA_EACH_SUM
      "movi v\\sum\\().4s, #0\n.endr\n"
      "1:\n" PECIA_EACH_SUM
      "bfmmla v\\sum\\().4s, v30.8h, v31.8h\n.endr\n"
      "subs %[rounds], %[rounds], #1\n"
      "b.ne 1b\n"
      : [rounds] "+r"(rounds)
      : [a] "r"(random_operands().a), [b] "r"(random_operands().b)
      : "cc", "memory", PECIA_VECTOR_REGISTERS);
}

}  // namespace

std::vector<PeakLoop> peak_loops(DType operands) {
  if (operands == DType::fp32) return {{"NEON FMLA", "", 2.0 * num_sums * fp32_of_vector, fmla}};
  if (operands == DType::bf16)
    return {{"BFMMLA", why_not(Isa::neon_bf16), num_sums * flops_of_bfmmla, bfmmla}};
  fail<Unsupported>("no instructions of the CPU multiply {}", name_of(operands));
}

void read_memory(const std::byte* data, int64_t bytes) {
  constexpr int64_t step_bytes = 256;
  PECIA_CHECK(bytes % step_bytes == 0 && bytes > 0, "{} bytes to read", bytes);
  const std::byte* const end = data + bytes;
  asm volatile(
      "1:\n"
      ".irp line,0,2,4,6,8,10,12,14\nldp q\\line, q31, [%[data]], #32\n.endr\n"
      "cmp %[data], %[end]\n"
      "b.lo 1b\n"
      : [data] "+r"(data)
      : [end] "r"(end)
      : "cc", "memory", PECIA_VECTOR_REGISTERS);
}

}  // namespace pecia::kernels::cpu
