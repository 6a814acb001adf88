// SPDX-License-Identifier: Apache-2.0
#include "kernels/api/head_linear.hpp"

namespace pecia::kernels {
namespace {

/// The same view, `elements` later.
TensorView moved(const TensorView& matrix, int64_t elements) {
  const int64_t stride = matrix.rows() > 1 ? matrix.row_stride() : matrix.size(1);
  const auto* const data = static_cast<const char*>(matrix.data());
  return TensorView(data + elements * size_of(matrix.dtype()), matrix.dtype(),
                    {matrix.rows(), stride})
      .slice_columns(0, matrix.size(1));
}

}  // namespace

LinearArgs linear_of_head(const HeadLinearArgs& args, int64_t head) {
  return {.x = moved(args.x, head * args.x_step),
          .weight = args.weight.slice_rows(head * args.out(), args.out()),
          .y = moved(args.y, head * args.y_step),
          .row_invariant = args.row_invariant,
          .same_x = head > 0 && args.x_step == 0 ? SameX::yes
                    : head == 0                  ? args.same_x
                                                 : SameX::no};
}

}  // namespace pecia::kernels
