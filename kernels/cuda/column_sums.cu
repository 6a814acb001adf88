// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/column_sums_kernel.cuh"
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/launch.cuh"

namespace pecia::kernels::cuda {

void column_sums(const ColumnSumsArgs& args, Context& context, device::Stream& stream) {
  const KeyRun& keys = args.keys;
  if (keys.num_keys == 0) return;
  const std::span<const int64_t> key_positions(keys.positions, static_cast<size_t>(keys.num_keys));
  context.staging.begin(Staging::bytes_of(args.query_positions) + Staging::bytes_of(key_positions),
                        stream);
  const int64_t* const queries = context.staging.add(args.query_positions);
  const int64_t* const positions = context.staging.add(key_positions);
  context.staging.send(stream);
  const ColumnSumsParams params = {.q = args.q.as<const float>(),
                                   .lse = args.lse.as<const float>(),
                                   .query_positions = queries,
                                   .key_positions = positions,
                                   .k = keys.k,
                                   .k_scales = keys.k_scales,
                                   .rows = args.q.rows(),
                                   .num_heads = args.q.size(1),
                                   .num_kv_heads = args.num_kv_heads,
                                   .head_dim = args.q.size(2),
                                   .head_stride = keys.head_stride,
                                   .num_keys = keys.num_keys,
                                   .window = args.window,
                                   .sums_stride = args.sums.row_stride(),
                                   .scale = args.scale,
                                   .sums = args.sums.as<float>()};
  with_kv_type(args.kv_dtype, [&](auto type) {
    launch(stream,
           {.x = (keys.num_keys + fma_keys - 1) / fma_keys,
            .y = params.num_heads,
            .threads = column_warps * warp_size,
            .shared_bytes = column_shared_bytes(params.head_dim)},
           column_sums_kernel<decltype(type)>, params);
  });
}

}  // namespace pecia::kernels::cuda
