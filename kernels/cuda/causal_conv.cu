// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cuda/causal_conv_kernel.cuh"
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/shared/launch.cuh"

namespace pecia::kernels::cuda {
namespace {

template <int Count>
void convolve(const CausalConvArgs& args, const StateRows* items, device::Stream& stream) {
  constexpr int threads = 128;
  constexpr int64_t most_blocks_of_item = 32;  // the short items beside a long one have as many
  int64_t most_rows = 0;
  for (const StateRows& item : args.items) most_rows = std::max(most_rows, item.num_rows);
  const auto x = matrix<const float>(args.x);
  const int64_t blocks = (x.columns + Count * threads - 1) / (Count * threads);
  launch_early(
      stream,
      {.x = static_cast<int64_t>(args.items.size()) * blocks,
       .y = std::min((most_rows + least_conv_rows - 1) / least_conv_rows, most_blocks_of_item),
       .threads = threads},
      causal_conv_kernel<Count>, x, args.weight.as<float>(), args.weight.size(1),
      static_cast<const float*>(args.bias.data()), items, matrix<float>(args.tails),
      matrix<float>(args.out));
}

}  // namespace

void causal_conv(const CausalConvArgs& args, Context& context, device::Stream& stream) {
  if (args.x.elements() == 0) return;
  const StateRows* const items = context.staging.send_array(args.items, stream);
  if (aligned_to<4>(args.x) && aligned_to<4>(args.tails) && aligned_to<4>(args.out))
    convolve<4>(args, items, stream);
  else
    convolve<1>(args, items, stream);
}

}  // namespace pecia::kernels::cuda
