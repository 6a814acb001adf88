// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Loops that do nothing but what the hardware does best: multiply-adds in registers, and reads of
/// memory. They give the peaks that a run's speed is compared with. The loops are assembly, so that
/// every build measures the same.

#include <cstdint>
#include <string>
#include <vector>

#include "lib/base/core/dtype.hpp"

namespace pecia::kernels::cpu {

/// A loop of independent multiply-adds, with enough of them to hide their latency on every CPU so
/// far.
struct PeakLoop {
  const char* instructions;  ///< "AVX2 VFMADD231PS"
  std::string why_not;       ///< why it cannot run here; "" if it can
  double flops_of_round;
  void (*run)(int64_t rounds);  ///< runs in the calling thread; touches memory only for set-up
};

/// Returns the loops for operands of this type (fp32 or bf16), from the least instructions to the
/// best. The first loop of fp32 runs on every CPU that the backend takes. The loops of bf16 may all
/// be missing. PECIA_MAX_ISA rules out what is beyond it.
std::vector<PeakLoop> peak_loops(DType operands);

/// Reads `bytes` bytes from `data` and does nothing with them. `bytes` is a multiple of 256. `data`
/// is aligned to 32 bytes.
void read_memory(const std::byte* data, int64_t bytes);

}  // namespace pecia::kernels::cpu
