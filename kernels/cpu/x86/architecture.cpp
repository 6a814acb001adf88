// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/architecture.hpp"

#include <hwy/targets.h>

#include "lib/base/core/error.hpp"
#include "lib/base/core/isa.hpp"

namespace pecia::kernels::cpu {

void choose_vectors() {
  if (isa() == Isa::avx2) hwy::DisableTargets(HWY_AVX3);
  // Highway asks for more than AVX2 and FMA (BMI2, F16C, AES), which a virtual machine may hide.
  if ((hwy::SupportedTargets() & (HWY_AVX2 | HWY_AVX3)) == 0)
    fail<Unsupported>(
        "the CPU backend needs AVX2 with FMA, BMI2, F16C, AES and PCLMULQDQ; this CPU hides one");
}

std::string_view needed_for_bf16() {
  return "AVX512-BF16";
}

}  // namespace pecia::kernels::cpu
