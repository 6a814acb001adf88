// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/kept_order_kernel.cuh"
#include "kernels/cuda/shared/launch.cuh"

namespace pecia::kernels::cuda {

void kept_order(const KeptOrderArgs& args, Context& context, device::Stream& stream) {
  if (args.items.empty()) return;
  Staging& staging = context.staging;
  staging.begin(
      Staging::bytes_of(args.items) + Staging::bytes_of(args.counts) + Staging::bytes_of(args.runs),
      stream);
  const OrderItem* const items = staging.add(args.items);
  const int64_t* const counts = staging.add(args.counts);
  const PlaceRun* const runs = staging.add(args.runs);
  staging.send(stream);
  launch(stream, {.x = static_cast<int64_t>(args.items.size()), .threads = order_threads},
         kept_order_kernel,
         KeptOrderParams{static_cast<const float*>(args.importance.data()), items, counts, runs,
                         args.order.as<int32_t>()});
}

}  // namespace pecia::kernels::cuda
