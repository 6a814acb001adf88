// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {

void square_sums(const SquareSumsArgs& args) {
  const int64_t heads = args.x.size(1), head_dim = args.x.size(2);
  for (int64_t t = 0; t < args.x.rows(); ++t)
    for (int64_t head = 0; head < heads; ++head) {
      const float* x = row_of(args.x, t) + head * head_dim;
      double sum = 0;
      for (int64_t i = 0; i < head_dim; ++i) sum += double{x[i]} * x[i];
      row_of(args.sums, t)[head] = static_cast<float>(sum);
    }
}

}  // namespace pecia::kernels::reference
