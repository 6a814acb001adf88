// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Products of packed rows (packed_rows.hpp) and panels of weights, for kernels with
/// `multiply_square`. The sums of a block of rows and one panel are made piece by piece of the depth
/// in the second cache, and leave it once, when they are complete: as fp32, or, for gate and up, as
/// what their activation makes of them. The bits are those of Bf16Kernel::multiply.

#include "kernels/api/gated_linear.hpp"
#include "kernels/api/linear.hpp"
#include "kernels/cpu/products/packed_rows.hpp"
#include "kernels/cpu/products/weight_panels.hpp"
#include "kernels/cpu/shared/workspace.hpp"

namespace pecia::kernels::cpu {

/// The longest rows of which a block stays in the second cache. gated_linear_packed takes no longer
/// ones; linear_packed cuts them, and adds the parts to y one after the other.
inline constexpr int64_t most_packed_depth = 5120;

/// `splits` must be 1.
void linear_packed(const Bf16Kernel& kernel, const LinearArgs& args, const Panels& weights,
                   PackedRows& packed, const device::Stream& stream, Workspace& workspace);

struct GatedPanels {
  Panels gate, up;
};
void gated_linear_packed(const Bf16Kernel& kernel, const GatedLinearArgs& args,
                         const GatedPanels& weights, PackedRows& packed,
                         const device::Stream& stream, Workspace& workspace);

}  // namespace pecia::kernels::cpu
