// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/shared/elementwise.cuh"
#include "kernels/cuda/shared/elementwise_kernels.cuh"

namespace pecia::kernels::cuda {
namespace {

template <typename From, typename To>
void cast_to(const CastArgs& args, device::Stream& stream) {
  const auto x = matrix<const From>(args.x);
  const auto out = matrix<To>(args.out);
  if (aligned_to<4>(args.x) && aligned_to<4>(args.out))
    launch(stream, grid_of_rows(x.rows, x.columns / 4), convert_kernel<4, From, To>, x, out);
  else
    launch(stream, grid_of_rows(x.rows, x.columns), convert_kernel<1, From, To>, x, out);
}

}  // namespace

void cast(const CastArgs& args, Context&, device::Stream& stream) {
  if (args.x.elements() == 0) return;
  if (args.out.dtype() == DType::fp32)
    cast_to<Bf16, float>(args, stream);
  else
    cast_to<float, Bf16>(args, stream);
}

}  // namespace pecia::kernels::cuda
