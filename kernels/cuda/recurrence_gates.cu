// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.hpp"
#include "kernels/cuda/recurrence_gates_kernel.cuh"
#include "kernels/cuda/shared/elementwise.cuh"

namespace pecia::kernels::cuda {

void recurrence_gates(const RecurrenceGatesArgs& args, Context&, device::Stream& stream) {
  const auto a = matrix<const float>(args.a);
  const auto b = args.b ? matrix<const float>(args.b) : Matrix<const float>{};
  launch_early(stream, grid_of_rows(a.rows, a.columns), recurrence_gates_kernel, a, b,
               args.rate.as<float>(), args.bias.as<float>(), args.least_step, args.most_step,
               matrix<float>(args.decay), matrix<float>(args.strength));
}

}  // namespace pecia::kernels::cuda
