// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pecia::kernels::cuda {

struct Context;

/// Compares attention by wgmma with the kernels of all GPUs, on the device: each type and size of
/// heads, rows and keys at scattered positions in several runs, without a window, with one and with
/// chunks, rows that see nothing. Throws SystemError if results differ by more than rounding, or if a kernel fails; the
/// message names the kernel and the switch that turns it off. It waits for the device.
void check_wgmma_attention(Context& context);

}  // namespace pecia::kernels::cuda
