// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/products/amx_kernel.hpp"

#include "kernels/cpu/attention/strip_products.hpp"
#include "kernels/cpu/attention/strips_of.hpp"
#include "kernels/cpu/products/tile_kernel.hpp"
#include "kernels/cpu/x86/amx_tiles.hpp"
#include "lib/base/core/error.hpp"
#include "lib/base/core/isa.hpp"

namespace pecia::kernels::cpu {
namespace {

/// AMX for the products, AVX-512 for the lanes.
const StripKernel& amx_strips() {
  static const StripKernel strips = strips_of<TileProducts<AmxTiles>>(vector_lanes());
  return strips;
}

std::string find_fault() {
  const std::string found = difference(amx_kernel(), twin_kernel());
  if (found.empty()) return "";
  return fmt::format("AMX of this CPU, {}, multiplies wrongly and is not used: {}", cpu_brand(),
                     found);
}

}  // namespace

const std::string& why_no_amx_products() {
  static const std::string why = isa() < Isa::amx_bf16 ? why_no_amx() : find_fault();
  return why;
}

const Bf16Kernel& amx_kernel() {
  static const Bf16Kernel kernel = tile_kernel_of<AmxTiles>("AMX TDPBF16PS", amx_strips());
  return kernel;
}

}  // namespace pecia::kernels::cpu
