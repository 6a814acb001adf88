// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/linear/operand.hpp"
#include "kernels/cuda/shared/elementwise.cuh"
#include "kernels/cuda/shared/elementwise_kernels.cuh"

namespace pecia::kernels::cuda {

TensorView room_for(const TensorView& x, DType dtype, device::Buffer& buffer) {
  const int64_t aligned = 16 / size_of(dtype);
  const int64_t padded = (x.size(1) + aligned - 1) / aligned * aligned;
  return buffer.tensor(dtype, {x.rows(), padded}).slice_columns(0, x.size(1));
}

TensorView operand_of_type(const TensorView& x, DType dtype, device::Buffer& buffer,
                           device::Stream& stream) {
  if (dtype == x.dtype()) return x;
  const int64_t rows = x.rows(), columns = x.size(1);
  const TensorView copy = room_for(x, dtype, buffer);
  with_stored_type(dtype, [&](auto type) {
    using T = decltype(type);
    if constexpr (!std::is_same_v<T, float>) {
      const auto from = matrix<const float>(x);
      if (aligned_to<4>(x))
        launch(stream, grid_of_rows(rows, columns / 4), convert_kernel<4, float, T>, from,
               matrix<T>(copy));
      else
        launch(stream, grid_of_rows(rows, columns), convert_kernel<1, float, T>, from,
               matrix<T>(copy));
    }
  });
  return copy;
}

TensorView aligned_operand(const TensorView& x, device::Buffer& buffer, device::Stream& stream) {
  if (x.dtype() != DType::bf16) return operand_of_type(x, DType::bf16, buffer, stream);
  if (x.row_stride() % 8 == 0 && reinterpret_cast<uintptr_t>(x.data()) % 16 == 0) return x;
  const TensorView copy = room_for(x, DType::bf16, buffer);
  launch(stream, grid_of_rows(x.rows(), x.size(1)), convert_kernel<1, Bf16, Bf16>,
         matrix<const Bf16>(x), matrix<Bf16>(copy));
  return copy;
}

}  // namespace pecia::kernels::cuda
