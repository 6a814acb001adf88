// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The kernel of AMX for many rows of bf16, and the same kernel on the twin's tiles.

#include <string>

#include "kernels/cpu/products/bf16_kernels.hpp"

namespace pecia::kernels::cpu {

/// Says why AMX multiplies nothing in this process; "" if it does. The first call compares a small
/// product of the instructions with the twin's. All its numbers and sums are small integers, so the
/// order of additions does not matter, and any difference is a fault of this CPU or of what
/// imitates it. Then the answer names the CPU.
const std::string& why_no_amx_products();

/// Requires why_no_amx_products() to be "".
const Bf16Kernel& amx_kernel();

/// Gives the same bits on any CPU with products of bf16, slowly. It is for tests.
const Bf16Kernel& twin_kernel();

/// Multiplies a small product by both kernels. Returns "" if the results are equal, or else where
/// they differ first.
std::string difference(const Bf16Kernel& kernel, const Bf16Kernel& twin);

}  // namespace pecia::kernels::cpu
