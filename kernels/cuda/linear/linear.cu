// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/linear/coded_linear.hpp"
#include "kernels/cuda/linear/linear_invariant.hpp"
#include "kernels/cuda/linear/operand.hpp"
#include "kernels/cuda/linear/scale_products_kernel.cuh"
#include "kernels/cuda/shared/elementwise.cuh"
#include "kernels/cuda/shared/elementwise_kernels.cuh"
#include "lib/base/core/codes.hpp"

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

/// Rows are multiplied some at a time where their products are changed afterwards, so few that a
/// cache holds the products.
int64_t rows_at_once(int64_t columns) {
  constexpr int64_t products_bytes = int64_t{32} << 20;
  return std::max<int64_t>(16, products_bytes / (columns * size_of(DType::fp32)));
}

bool rows_are_aligned(const TensorView& y) {
  return reinterpret_cast<uintptr_t>(y.data()) % 16 == 0 &&
         y.row_stride() * size_of(y.dtype()) % 16 == 0;
}

/// y in bf16 that no library writes: from products in fp32.
void linear_then_round(const LinearArgs& args, Context& context, device::Stream& stream) {
  const int64_t rows = args.x.rows(), out = args.y.size(1), most = rows_at_once(out);
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t count = std::min(most, rows - first);
    LinearArgs part = args;
    part.x = args.x.slice_rows(first, count);
    part.y = context.wide_products.tensor(DType::fp32, {count, out});
    part.same_x = SameX::no;
    linear(part, context, stream);
    launch(stream, grid_of_rows(count, out), convert_kernel<1, float, Bf16>,
           matrix<const float>(part.y), matrix<Bf16>(args.y.slice_rows(first, count)));
  }
}

/// x as codes, with a scale for each row: those of the call before where x is the same.
struct CodesOfX {
  TensorView codes, scales;
};
CodesOfX codes_of_x(const LinearArgs& args, Context& context, device::Stream& stream) {
  const TensorView& x = args.x;
  const CodesOfX of = {room_for(x, DType::fp8, context.codes),
                       context.code_scales.tensor(DType::fp32, {x.rows()})};
  const TensorView& before = context.rounded_x;
  const bool known = args.same_x == SameX::yes && before && before.data() == x.data() &&
                     before.rows() == x.rows() && before.size(1) == x.size(1);
  if (!known) quantize_rows({x, of.codes, of.scales}, context, stream);
  context.rounded_x = x;
  return of;
}

/// Rows of x are rounded to codes first. Where the product of this shape takes no scales, it is made
/// beside y and scaled into it.
void fp8_linear(const LinearArgs& args, const float* bias, Context& context,
                device::Stream& stream) {
  const int64_t rows = args.x.rows(), out = args.y.size(1), most = rows_at_once(out);
  const auto [codes, scales] = codes_of_x(args, context, stream);
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
  if (args.y.dtype() != DType::fp32) return linear_then_round(args, context, stream);
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
  if (row_invariant && is_code(type) && type != DType::mxfp4 && type != DType::nvfp4)
    fail<Unsupported>(
        "the CUDA backend keeps a row's bits the same in every call with weights of fp32, bf16, "
        "fp16, mxfp4 or nvfp4, not of {}; set model.dtype: bf16, or reproducible: run",
        name_of(type));
  if (args.same_x == SameX::no) context.rounded_x = {};
  if (args.y.elements() == 0) return;
  const bool has_depth = args.x.size(1) > 0;
  const bool coded = has_depth && is_coded(type, args.weight_scales);
  const bool few_rows = coded ? args.x.rows() <= most_coded_rows && !row_invariant
                              : has_depth && reads_few_rows(args);
  const bool written_by_library = !args.bias && has_depth && !few_rows && rows_are_aligned(args.y);
  if (args.y.dtype() != DType::fp32 && !written_by_library)
    return linear_then_round(args, context, stream);
  if (coded) {
    const TensorView x = aligned_operand(args.x, context.operand, stream);
    if (few_rows) return coded_few_rows(args, x, context, stream);
    const float* const bias = bias_in_fp32(args.bias, context.bias, stream);
    return widened_linear(args, x, bias, context, stream);
  }
  if (few_rows)
    return coded_few_rows(args, aligned_operand(args.x, context.operand, stream), context, stream);
  const float* const bias = bias_in_fp32(args.bias, context.bias, stream);
  if (!has_depth) return add_bias(args, bias, stream);
  if (type == DType::fp8) return fp8_linear(args, bias, context, stream);
  const TensorView x = operand_of_type(args.x, type, context.operand, stream);
  if (row_invariant) return linear_invariant(args, x, bias, context, stream);
  context.matmul->run({x, args.weight, args.y, bias, args.accumulate}, stream);
}

}  // namespace pecia::kernels::cuda
