// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/architecture.hpp"

#include "lib/base/core/isa.hpp"

namespace pecia::kernels::cpu {

/// Every CPU of the architecture has NEON, which is all that Highway is compiled for.
void choose_vectors() {
  isa();  // refuses a wrong PECIA_MAX_ISA
}

std::string_view needed_for_bf16() {
  return "BF16 (FEAT_BF16 of Armv8.6)";
}

}  // namespace pecia::kernels::cpu
