// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {

void rope_tables(const RopeTablesArgs& args) {
  const int64_t pairs = args.cos.size(1);
  for (int64_t t = 0; t < args.cos.rows(); ++t) {
    const float factor = args.factors[args.sets[t]];
    for (int64_t i = 0; i < pairs; ++i) {
      const float angle =
          static_cast<float>(args.positions[t]) * args.frequencies[args.sets[t] * pairs + i];
      row_of(args.cos, t)[i] = static_cast<float>(std::cos(double{angle})) * factor;
      row_of(args.sin, t)[i] = static_cast<float>(std::sin(double{angle})) * factor;
    }
  }
}

}  // namespace pecia::kernels::reference
