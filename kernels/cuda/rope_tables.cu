// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/rope_tables_kernel.cuh"
#include "kernels/cuda/shared/elementwise.cuh"

namespace pecia::kernels::cuda {

void rope_tables(const RopeTablesArgs& args, Context& context, device::Stream& stream) {
  if (args.cos.elements() == 0) return;
  Staging& staging = context.staging;
  staging.begin(Staging::bytes_of(args.positions) + Staging::bytes_of(args.sets) +
                    Staging::bytes_of(args.frequencies) + Staging::bytes_of(args.factors),
                stream);
  const int64_t* const positions = staging.add(args.positions);
  const int32_t* const sets = staging.add(args.sets);
  const float* const frequencies = staging.add(args.frequencies);
  const float* const factors = staging.add(args.factors);
  staging.send(stream);
  launch(stream, grid_of_rows(args.cos.rows(), args.cos.size(1)), rope_tables_kernel, positions,
         sets, frequencies, factors, matrix<float>(args.cos), matrix<float>(args.sin));
}

}  // namespace pecia::kernels::cuda
