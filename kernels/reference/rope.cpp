// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {

void rope(const RopeArgs& args) {
  const int64_t half = args.cos.size(1), head_dim = args.x.size(2);
  const int64_t step = args.pairs == RopePairs::halves ? 1 : 2;
  const int64_t partner = args.pairs == RopePairs::halves ? half : 1;
  for (int64_t t = 0; t < args.x.rows(); ++t)
    for (int64_t h = 0; h < args.x.size(1); ++h)
      for (int64_t i = 0; i < half; ++i) {
        float* first = row_of(args.x, t) + h * head_dim + i * step;
        const double a = first[0], b = first[partner];
        const double cos = row_of(args.cos, t)[i], sin = row_of(args.sin, t)[i];
        first[0] = static_cast<float>(a * cos - b * sin);
        first[partner] = static_cast<float>(b * cos + a * sin);
      }
}

}  // namespace pecia::kernels::reference
