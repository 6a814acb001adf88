// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cuda/cuda.hpp"

namespace pecia::kernels::cuda {

/// Up to how many rows of x codes are widened in registers, 16 rows at a time. The blocks of the
/// same codes run side by side, so a cache has them for all but the first. Not measured.
inline constexpr int64_t most_coded_rows = 64;

/// Tells whether the numbers of weights of a type multiply x as it is, which the functions below do.
/// For fp8 the scales show whether x is also quantised.
bool is_coded(DType type, const TensorView& scales);

/// Computes `linear` with weights that are codes, for up to most_coded_rows rows, or of bf16. x is
/// bf16, with rows at multiples of 16 bytes. Neither y nor the sum is empty.
void coded_few_rows(const LinearArgs& args, const TensorView& x, const Context& context,
                    device::Stream& stream);

/// Tells whether `linear` leaves weights of bf16, or of fp8 that rounds x elsewhere, to
/// coded_few_rows: for the rows of one tile, since it reads the weights again for each, and where it
/// can read them 16 bytes at a time. x is not rounded to fp8 there.
bool reads_few_rows(const LinearArgs& args);

/// Does the same for any number of rows. Some rows of the weights at a time become bf16 beside them,
/// so few that a cache holds them, and are multiplied as weights of bf16 are. `bias` is that of
/// `args` in fp32, or null.
void widened_linear(const LinearArgs& args, const TensorView& x, const float* bias,
                    Context& context, device::Stream& stream);

}  // namespace pecia::kernels::cuda
