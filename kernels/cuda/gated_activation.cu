// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/shared/elementwise.cuh"
#include "kernels/cuda/shared/elementwise_kernels.cuh"

namespace pecia::kernels::cuda {
namespace {

/// A thread reads 16 bytes at once where rows are aligned to them. A gate of whole rows is read alone.
template <typename In, typename Out>
void run(const GatedActivationArgs& args, device::Stream& stream) {
  constexpr int several = 16 / sizeof(In);
  const bool in_vectors = (args.gate.size(1) == 1 || aligned_to<several>(args.gate)) &&
                          aligned_to<several>(args.up) && aligned_to<several>(args.out);
  launch(
      stream, grid_of_rows(args.out.rows(), args.out.size(1) / (in_vectors ? several : 1)),
      in_vectors ? gated_activation_kernel<several, In, Out> : gated_activation_kernel<1, In, Out>,
      matrix<const In>(args.gate), matrix<const In>(args.up), matrix<Out>(args.out),
      args.activation);
}

}  // namespace

void gated_activation(const GatedActivationArgs& args, Context&, device::Stream& stream) {
  if (args.gate.dtype() == DType::bf16) return run<Bf16, Bf16>(args, stream);
  with_stored_type(args.out.dtype(), [&](auto out) { run<float, decltype(out)>(args, stream); });
}

}  // namespace pecia::kernels::cuda
