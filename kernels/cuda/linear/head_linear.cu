// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/linear/operand.hpp"

namespace pecia::kernels::cuda {
namespace {

/// x of all heads in another type, with rows at multiples of 16 bytes. Heads stay as far apart, and
/// what is between them is rounded, too.
HeadLinearArgs with_operand(const HeadLinearArgs& args, Context& context, device::Stream& stream) {
  const DType type = args.weight.dtype();
  if (args.x.dtype() == type) return args;
  const TensorView& x = args.x;
  const int64_t width = (args.heads - 1) * args.x_step + args.in();
  const bool beside = x.rows() == 1 || width <= x.row_stride();
  PECIA_CHECK(beside, "{} heads of {}, {} apart, in rows of {}", args.heads, args.in(), args.x_step,
              x.row_stride());
  const TensorView all =
      TensorView(x.data(), x.dtype(), {x.rows(), x.rows() == 1 ? width : x.row_stride()})
          .slice_columns(0, width);
  HeadLinearArgs rounded = args;
  rounded.x = operand_of_type(all, type, context.operand, stream).slice_columns(0, args.in());
  return rounded;
}

}  // namespace

/// Row-invariant products go head by head to the kernels that keep the bits.
void head_linear(const HeadLinearArgs& args, Context& context, device::Stream& stream) {
  context.rounded_x = {};
  if (args.y.elements() == 0) return;
  const HeadLinearArgs taken = with_operand(args, context, stream);
  if (args.row_invariant == RowInvariant::yes || args.in() == 0) {
    for (int64_t head = 0; head < args.heads; ++head)
      linear(linear_of_head(taken, head), context, stream);
    return;
  }
  context.matmul->run({.x = taken.x,
                       .weight = args.weight.slice_rows(0, args.out()),
                       .y = args.y,
                       .bias = nullptr,
                       .accumulate = Accumulate::no,
                       .count = args.heads,
                       .x_step = args.x_step,
                       .weight_step = args.out() * args.weight.row_stride(),
                       .y_step = args.y_step},
                      stream);
}

}  // namespace pecia::kernels::cuda
