// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pecia::kernels::cuda {

struct Context;

/// Compares experts of fp8 by fp8 with the same experts by our own kernels, which take x in bf16, on the
/// device: groups of no, few and many rows, whose shapes are no multiples of a tile's. Throws
/// SystemError if results differ by more than the rounding of x and the activations, or if a kernel
/// fails; the message names the library and the switch. It waits for the device.
void check_fp8_experts(Context& context);

}  // namespace pecia::kernels::cuda
