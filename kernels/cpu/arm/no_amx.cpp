// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/amx_kernel.hpp"
#include "lib/base/core/error.hpp"
#include "lib/base/core/isa.hpp"

namespace pecia::kernels::cpu {

const std::string& why_no_amx_products() {
  static const std::string why = why_no_amx();
  return why;
}

const Bf16Kernel& amx_kernel() {
  fail<Unsupported>("AMX is of x86: {}", why_no_amx());
}

}  // namespace pecia::kernels::cpu
