// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/cuda.hpp"

namespace pecia::kernels::cuda {

/// Computes `linear` with RowInvariant::yes. x has the type of the weights, which is not fp8. The
/// bias is fp32 or null. Neither y nor the sum is empty. There is one kernel for each type. In each
/// shape of the kernel, an element of y takes the same operations in the same order, whatever the
/// other rows are.
void linear_invariant(const LinearArgs& args, const TensorView& x, const float* bias,
                      Context& context, device::Stream& stream);

}  // namespace pecia::kernels::cuda
