#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/elementwise_kernels.cuh"

namespace pecia::kernels::cuda {

void kv_store(const KvStoreArgs& args, Context& context, device::Stream& stream) {
  if (args.x.elements() == 0) return;
  context.staging.begin(Staging::bytes_of(args.slots), stream);
  const int64_t* const slots = context.staging.add(args.slots);
  context.staging.send(stream);
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
