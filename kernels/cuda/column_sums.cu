// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/column_sums_kernel.cuh"
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/shared/launch.cuh"
#include "kernels/cuda/shared/matrix.hpp"

namespace pecia::kernels::cuda {

void column_sums(const ColumnSumsArgs& args, Context& context, device::Stream& stream) {
  if (args.run.num_keys == 0) return;
  context.staging.begin(Staging::bytes_of(args.query_positions), stream);
  const int64_t* const queries = context.staging.add(args.query_positions);
  context.staging.send(stream);
  const ColumnSumsParams params = {.q = args.q.as<const float>(),
                                   .lse = args.lse.as<const float>(),
                                   .query_positions = queries,
                                   .run = args.run,
                                   .k = args.keys.k,
                                   .k_scales = args.keys.k_scales,
                                   .rows = args.q.rows(),
                                   .num_heads = args.q.size(1),
                                   .num_kv_heads = args.num_kv_heads,
                                   .head_dim = args.q.size(2),
                                   .sums_stride = args.sums.row_stride(),
                                   .window = args.window,
                                   .scale = args.scale,
                                   .sums = args.sums.as<float>()};
  const Grid grid = {.x = (args.run.num_keys + fma_keys - 1) / fma_keys,
                     .y = params.num_kv_heads,
                     .threads = column_warps * warp_size,
                     .shared_bytes = column_shared_bytes(params.head_dim)};
  const bool by_four = params.head_dim % 4 == 0 && aligned_to<4>(args.q);
  with_kv_type(args.kv_dtype, [&](auto type) {
    using T = decltype(type);
    launch(stream, grid, by_four ? column_sums_kernel<T, 4> : column_sums_kernel<T, 1>, params);
  });
}

}  // namespace pecia::kernels::cuda
