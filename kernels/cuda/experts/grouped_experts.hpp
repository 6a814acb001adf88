// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/cuda.hpp"

namespace pecia::kernels::cuda {

/// Tells whether grouped_experts multiplies these: gates and ups of one type, downs of one type,
/// each bf16 or codes.
bool takes_grouped(const ExpertsArgs& args);

/// Computes `experts` by rows that are grouped by expert, some rows at a time. x is bf16, with rows
/// at multiples of 16 bytes. A row's bits depend on nothing but the row and its experts.
void grouped_experts(const ExpertsArgs& args, const TensorView& x, Context& context,
                     device::Stream& stream);

}  // namespace pecia::kernels::cuda
