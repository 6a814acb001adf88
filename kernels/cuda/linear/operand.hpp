// SPDX-License-Identifier: Apache-2.0
#pragma once
/// x as products take it: rows in the type that they multiply, in memory of the buffer where x has
/// another one.

#include "lib/base/core/tensor_view.hpp"
#include "lib/base/device/buffer.hpp"

namespace pecia::kernels::cuda {

/// Returns room for x in another type, whose rows begin at multiples of 16 bytes.
TensorView room_for(const TensorView& x, DType dtype, device::Buffer& buffer);

/// Returns x itself, or a copy rounded to `dtype`. A value too large for fp16 becomes infinity.
TensorView operand_of_type(const TensorView& x, DType dtype, device::Buffer& buffer,
                           device::Stream& stream);

/// Returns x in bf16, with rows at multiples of 16 bytes.
TensorView aligned_operand(const TensorView& x, device::Buffer& buffer, device::Stream& stream);

}  // namespace pecia::kernels::cuda
