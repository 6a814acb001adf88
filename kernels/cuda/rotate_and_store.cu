// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/rotate_and_store_kernel.cuh"
#include "kernels/cuda/shared/launch.cuh"

namespace pecia::kernels::cuda {
namespace {

Matrix<const float> table_of(const TensorView& tensor) {
  return tensor ? matrix<const float>(tensor) : Matrix<const float>{};
}

template <typename T>
CacheOfHeads<T> cache_of(const StoredHeads& stored) {
  return {matrix<T>(stored.vectors),
          stored.scales ? matrix<float>(stored.scales) : Matrix<float>{}};
}

template <typename T, typename W>
void run(const RotateAndStoreArgs& args, const int64_t* slots, device::Stream& stream) {
  const int64_t head_dim = args.q_out.size(2);
  const int64_t heads = args.q_out.size(1) + 2 * args.keys.vectors.rows();
  const int64_t warps = std::min<int64_t>(heads, most_heads_at_once);
  RotateParams<W> params = {.q = matrix<const float>(args.q),
                            .k = matrix<const float>(args.k),
                            .v = matrix<const float>(args.v),
                            .q_norm = static_cast<const W*>(args.q_norm.data()),
                            .k_norm = static_cast<const W*>(args.k_norm.data()),
                            .cos = table_of(args.cos),
                            .sin = table_of(args.sin),
                            .q_out = {},
                            .q_rounded = {},
                            .slots = slots,
                            .head_dim = static_cast<int32_t>(head_dim),
                            .at_once = head_dim % 4 == 0 ? 4 : 1,
                            .eps = args.eps,
                            .pairs = args.pairs};
  if (args.q_out.dtype() == DType::bf16)
    params.q_rounded = matrix<Bf16>(args.q_out);
  else
    params.q_out = matrix<float>(args.q_out);
  launch_early(stream,
               {.x = args.q_out.rows(),
                .y = (heads + warps - 1) / warps,
                .threads = static_cast<int>(warps) * warp_size,
                .shared_bytes = warps * head_dim * static_cast<int64_t>(sizeof(float))},
               rotate_and_store_kernel<T, W>, params, cache_of<T>(args.keys),
               cache_of<T>(args.values));
}

}  // namespace

void rotate_and_store(const RotateAndStoreArgs& args, Context& context, device::Stream& stream) {
  if (args.q_out.elements() == 0) return;
  const int64_t* const slots = context.staging.send_array(args.slots, stream);
  with_kv_type(args.keys.vectors.dtype(), [&](auto type) {
    with_stored_type(args.q_norm ? args.q_norm.dtype() : DType::fp32,
                     [&](auto norm) { run<decltype(type), decltype(norm)>(args, slots, stream); });
  });
}

}  // namespace pecia::kernels::cuda
