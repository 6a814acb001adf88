// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/cuda.hpp"

namespace pecia::kernels::cuda {

/// `linear` with RowInvariant::yes, of x in the type of the weights, which is not fp8, and the bias
/// in fp32 or null; neither y nor the sum is empty. One kernel for each type: an element of y is
/// the same operations in the same order in each of its shapes, whatever the other rows are.
void linear_invariant(const LinearArgs& args, const TensorView& x, const float* bias,
                      Context& context, device::Stream& stream);

}  // namespace pecia::kernels::cuda
