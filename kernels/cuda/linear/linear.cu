// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/linear/coded_linear.hpp"
#include "kernels/cuda/linear/linear_invariant.hpp"
#include "kernels/cuda/linear/operand.hpp"
#include "kernels/cuda/linear/scale_products_kernel.cuh"
#include "kernels/cuda/shared/elementwise.cuh"
#include "kernels/cuda/shared/elementwise_kernels.cuh"
#include "lib/core/codes.hpp"

namespace pecia::kernels::cuda {
namespace {

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

void add_bias(const LinearArgs& args, const float* bias, device::Stream& stream) {
  launch(stream, grid_of_rows(args.y.rows(), args.y.size(1)), add_nothing_kernel,
         matrix<float>(args.y), bias, args.accumulate);
}

void scale_products(const TensorView& products, const float* x_scales, const LinearArgs& args,
                    const float* bias, const TensorView& y, device::Stream& stream) {
  const auto from = matrix<const float>(products);
  const auto* const weight_scales = args.weight_scales.as<const float>();
  const bool aligned =
      aligned_to<4>(y) && reinterpret_cast<uintptr_t>(weight_scales) % (4 * sizeof(float)) == 0;
  launch(stream, grid_of_rows(y.rows(), aligned ? y.size(1) / 4 : y.size(1)),
         aligned ? scale_products_kernel<4> : scale_products_kernel<1>, from, x_scales,
         weight_scales, bias, args.accumulate, matrix<float>(y));
}

/// Rows of x are rounded to codes first. Where the product of this shape takes no scales, some rows
/// of it at a time are made beside y, so few that the cache holds them, and scaled into it.
void fp8_linear(const LinearArgs& args, const float* bias, Context& context,
                device::Stream& stream) {
  constexpr int64_t products_bytes = int64_t{32} << 20;
  const int64_t rows = args.x.rows(), out = args.y.size(1);
  const TensorView codes = room_for(args.x, DType::fp8, context.operand);
  const TensorView scales = context.operand_scales.tensor(DType::fp32, {rows});
  quantize_rows({args.x, codes, scales}, context, stream);
  const MatmulArgs scaled = {codes,
                             args.weight,
                             args.y,
                             nullptr,
                             bias != nullptr ? Accumulate::yes : args.accumulate,
                             scales.as<const float>(),
                             args.weight_scales.as<const float>()};
  if (context.matmul->takes(scaled)) {
    if (bias != nullptr) add_bias(args, bias, stream);
    return context.matmul->run(scaled, stream);
  }
  const int64_t most = std::max<int64_t>(16, products_bytes / (out * size_of(DType::fp32)));
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t count = std::min(most, rows - first);
    const TensorView products = context.products.tensor(DType::fp32, {count, out});
    context.matmul->run(
        {codes.slice_rows(first, count), args.weight, products, nullptr, Accumulate::no}, stream);
    scale_products(products, scales.as<const float>() + first, args, bias,
                   args.y.slice_rows(first, count), stream);
  }
}

}  // namespace

void linear(const LinearArgs& args, Context& context, device::Stream& stream) {
  const bool row_invariant = args.row_invariant == RowInvariant::yes;
  const DType type = args.weight.dtype();
  if (row_invariant && is_code(type) && type != DType::mxfp4)
    fail<Unsupported>(
        "the CUDA backend keeps a row's bits the same in every call with weights of fp32, bf16, "
        "fp16 or mxfp4, not of {}; set model.dtype: bf16, or reproducible: run",
        name_of(type));
  if (args.y.elements() == 0) return;
  const bool has_depth = args.x.size(1) > 0;
  if (has_depth && is_coded(type, args.weight_scales)) {
    const TensorView x = aligned_operand(args.x, context.operand, stream);
    if (x.rows() <= most_coded_rows && !row_invariant)
      return coded_few_rows(args, x, context, stream);
    const float* const bias = bias_in_fp32(args.bias, context.bias, stream);
    return widened_linear(args, x, bias, context, stream);
  }
  if (has_depth && reads_few_rows(args))
    return coded_few_rows(args, aligned_operand(args.x, context.operand, stream), context, stream);
  const float* const bias = bias_in_fp32(args.bias, context.bias, stream);
  if (!has_depth) return add_bias(args, bias, stream);
  if (type == DType::fp8) return fp8_linear(args, bias, context, stream);
  const TensorView x = operand_of_type(args.x, type, context.operand, stream);
  if (row_invariant) return linear_invariant(args, x, bias, context, stream);
  context.matmul->run({x, args.weight, args.y, bias, args.accumulate}, stream);
}

}  // namespace pecia::kernels::cuda
