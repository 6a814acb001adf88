// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Loops that do nothing but what the hardware does best: multiply-adds in registers, and reads of
/// memory. They give the peaks that a run's speed is compared with. The loops are assembly, so that
/// every build measures the same.

#include <cstdint>
#include <string>
#include <vector>

#include "lib/core/dtype.hpp"

namespace pecia::kernels::cpu {

/// Independent multiply-adds, as many as hide their latency on every CPU so far.
struct PeakLoop {
  const char* instructions;  ///< "AVX2 VFMADD231PS"
  std::string why_not;       ///< why it cannot run here; "" where it can
  double flops_of_round;
  void (*run)(int64_t rounds);  ///< by the calling thread; no memory is touched but for set-up
};

/// The loops for operands of this type (fp32 or bf16), from the least instructions to the best. The
/// first one of fp32 runs on every CPU that the backend takes; those of bf16 may all be missing.
/// PECIA_MAX_ISA rules out what is beyond it, and AMX with any value.
std::vector<PeakLoop> peak_loops(DType operands);

/// Reads `bytes`, a multiple of 256, from `data`, aligned to 32 bytes, and does nothing with them.
void read_memory(const std::byte* data, int64_t bytes);

}  // namespace pecia::kernels::cpu
