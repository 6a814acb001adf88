// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/shared/elementwise.cuh"
#include "kernels/cuda/shared/elementwise_kernels.cuh"

namespace pecia::kernels::cuda {

void sum_rows(const SumRowsArgs& args, Context& context, device::Stream& stream) {
  if (args.out.elements() == 0) return;
  const int32_t* const which = context.staging.send_array(args.which, stream);
  with_stored_type(args.x.dtype(), [&](auto type) {
    using T = decltype(type);
    const auto x = matrix<const T>(args.x);
    const auto out = matrix<T>(args.out);
    const bool adds = args.accumulate == Accumulate::yes;
    const bool largest = args.combine == CombineRows::largest;
    if (aligned_to<4>(args.x) && aligned_to<4>(args.out))
      launch(stream, grid_of_rows(out.rows, out.columns / 4), sum_rows_kernel<4, T>, x, which,
             args.terms(), adds, largest, out);
    else
      launch(stream, grid_of_rows(out.rows, out.columns), sum_rows_kernel<1, T>, x, which,
             args.terms(), adds, largest, out);
  });
}

}  // namespace pecia::kernels::cuda
