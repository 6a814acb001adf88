// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/kv_store_scaled_kernel.cuh"
#include "kernels/cuda/shared/elementwise.cuh"
#include "kernels/cuda/shared/elementwise_kernels.cuh"

namespace pecia::kernels::cuda {
namespace {

void store_scaled(const KvStoreArgs& args, const int64_t* slots, device::Stream& stream) {
  const int64_t heads = args.x.size(1), head_dim = args.x.size(2);
  constexpr int64_t most_warps = 8;
  const Grid grid = {.x = args.x.rows(),
                     .threads = static_cast<int>(std::min(heads, most_warps)) * warp_size};
  const auto x = matrix<const float>(args.x);
  const auto codes = matrix<Fp8>(args.cache);
  const auto scales = matrix<float>(args.scales);
  if (head_dim % 4 == 0 && aligned_to<4>(args.x) && aligned_to<4>(args.cache))
    launch(stream, grid, kv_store_scaled_kernel<4>, x, head_dim, slots, codes, scales);
  else
    launch(stream, grid, kv_store_scaled_kernel<1>, x, head_dim, slots, codes, scales);
}

}  // namespace

void kv_store(const KvStoreArgs& args, Context& context, device::Stream& stream) {
  if (args.x.elements() == 0) return;
  const int64_t* const slots = context.staging.send_array(args.slots, stream);
  if (args.cache.dtype() == DType::fp8) return store_scaled(args, slots, stream);
  const int64_t head_dim = args.x.size(2);
  const auto x = matrix<const float>(args.x);
  with_stored_type(args.cache.dtype(), [&](auto type) {
    using T = decltype(type);
    const auto cache = matrix<T>(args.cache);
    if (head_dim % 4 == 0 && aligned_to<4>(args.x) && aligned_to<4>(args.cache))
      launch(stream, grid_of_rows(x.rows, x.columns / 4), kv_store_kernel<4, T>, x, head_dim, slots,
             cache);
    else
      launch(stream, grid_of_rows(x.rows, x.columns), kv_store_kernel<1, T>, x, head_dim, slots,
             cache);
  });
}

}  // namespace pecia::kernels::cuda
