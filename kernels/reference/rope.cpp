// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {

void rope(const RopeArgs& args) {
  const int64_t half = args.cos.size(1), head_dim = args.x.size(2);
  const int64_t step = args.pairs == RopePairs::halves ? 1 : 2;
  const int64_t partner = args.pairs == RopePairs::halves ? half : 1;
  for (int64_t t = 0; t < args.x.rows(); ++t)
    for (int64_t h = 0; h < args.x.size(1); ++h) {
      const float* const x = row_of(args.x, t) + h * head_dim;
      std::vector<float> turned(x, x + head_dim);
      for (int64_t i = 0; i < half; ++i) {
        const int64_t at = args.first + i * step;
        const double a = x[at], b = x[at + partner];
        const double cos = row_of(args.cos, t)[i], sin = row_of(args.sin, t)[i];
        turned[at] = static_cast<float>(a * cos - b * sin);
        turned[at + partner] = static_cast<float>(b * cos + a * sin);
      }
      if (args.scale)
        for (float& element : turned) element *= args.scale.as<float>()[t];
      for (int64_t i = 0; i < head_dim; ++i)
        store_from_float(args.out.row(t), args.out.dtype(), h * head_dim + i, turned[i]);
    }
}

}  // namespace pecia::kernels::reference
