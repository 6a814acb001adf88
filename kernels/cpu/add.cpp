// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/shared/parallel.hpp"

namespace pecia::kernels::cpu {

void add(const AddArgs& args, const device::Stream& stream) {
  const int64_t width = args.y.size(1);
  for_each_range(stream, args.y.rows(), rows_per_task(width), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      auto* y = static_cast<float*>(args.y.row(t));
      if (args.x.dtype() == DType::fp32) {
        const auto* x = static_cast<const float*>(args.x.row(t));
        for (int64_t i = 0; i < width; ++i) y[i] += x[i];
      } else {
        const auto* x = static_cast<const uint16_t*>(args.x.row(t));
        for (int64_t i = 0; i < width; ++i) y[i] += bf16_to_float(x[i]);
      }
      if (args.scale != 1)
        for (int64_t i = 0; i < width; ++i) y[i] *= args.scale;
    }
  });
}

}  // namespace pecia::kernels::cpu
