#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/elementwise_kernels.cuh"

namespace pecia::kernels::cuda {
namespace {

/// x as the product wants it: itself, or a copy rounded to `dtype`, whose rows begin at multiples
/// of 16 bytes. A value too large for fp16 becomes infinity.
TensorView operand_of_type(const TensorView& x, DType dtype, device::Buffer& buffer,
                           device::Stream& stream) {
  if (dtype == DType::fp32) return x;
  const int64_t rows = x.rows(), columns = x.size(1), padded = (columns + 7) / 8 * 8;
  const TensorView copy = buffer.tensor(dtype, {rows, padded}).slice_columns(0, columns);
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

/// As cuBLASLt takes it: fp32, aligned to 16 bytes.
const float* bias_in_fp32(const TensorView& bias, device::Buffer& buffer, device::Stream& stream) {
  if (!bias) return nullptr;
  if (bias.dtype() == DType::fp32 && reinterpret_cast<uintptr_t>(bias.data()) % 16 == 0)
    return bias.as<float>();
  const int64_t count = bias.elements();
  const TensorView wide = buffer.tensor(DType::fp32, {1, count});
  with_stored_type(bias.dtype(), [&](auto type) {
    using T = decltype(type);
    launch(stream, grid_of_rows(1, count), convert_kernel<1, T, float>,
           matrix<const T>(bias.reshape({1, count})), matrix<float>(wide));
  });
  return wide.as<float>();
}

}  // namespace

void linear(const LinearArgs& args, Context& context, device::Stream& stream) {
  if (args.row_invariant == RowInvariant::yes)
    fail<Unsupported>(
        "the CUDA backend cannot keep a row's bits the same in every call; set reproducible: run");
  if (args.y.elements() == 0) return;
  const float* const bias = bias_in_fp32(args.bias, context.bias, stream);
  if (args.x.size(1) == 0) {
    launch(stream, grid_of_rows(args.y.rows(), args.y.size(1)), add_nothing_kernel,
           matrix<float>(args.y), bias, args.accumulate);
    return;
  }
  const TensorView x = operand_of_type(args.x, args.weight.dtype(), context.operand, stream);
  context.matmul->run({x, args.weight, args.y, bias, args.accumulate}, stream);
}

}  // namespace pecia::kernels::cuda
