// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/products/gemm.hpp"
#include "kernels/cpu/shared/parallel.hpp"

namespace pecia::kernels::cpu {

void embedding(const EmbeddingArgs& args, const device::Stream& stream) {
  const int64_t hidden = args.out.size(1);
  for_each_range(stream, args.out.rows(), rows_per_task(hidden), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      auto* out = static_cast<float*>(args.out.row(t));
      const int64_t row = args.table_row(t);
      if (row < 0) {
        std::fill_n(out, hidden, -0.0f);
        continue;
      }
      widen_rows(args.table.row(row), args.table.dtype(), hidden, 1, hidden, out, hidden);
      if (args.scale != 1)
        for (int64_t i = 0; i < hidden; ++i) out[i] *= args.scale;
    }
  });
}

}  // namespace pecia::kernels::cpu
