// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/shared/elementwise.cuh"
#include "kernels/cuda/shared/elementwise_kernels.cuh"

namespace pecia::kernels::cuda {

void embedding(const EmbeddingArgs& args, Context& context, device::Stream& stream) {
  if (args.out.elements() == 0) return;
  const int32_t* const tokens = context.staging.send_array(args.tokens, stream);
  with_stored_type(args.table.dtype(), [&](auto type) {
    using T = decltype(type);
    const auto table = matrix<const T>(args.table);
    const auto out = matrix<float>(args.out);
    if (aligned_to<4>(args.table) && aligned_to<4>(args.out))
      launch(stream, grid_of_rows(out.rows, out.columns / 4), embedding_kernel<4, T>, table, tokens,
             args.first_token, args.scale, out);
    else
      launch(stream, grid_of_rows(out.rows, out.columns), embedding_kernel<1, T>, table, tokens,
             args.first_token, args.scale, out);
  });
}

}  // namespace pecia::kernels::cuda
