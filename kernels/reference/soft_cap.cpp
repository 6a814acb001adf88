// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {

void soft_cap(const SoftCapArgs& args) {
  const double cap = args.cap;
  for (int64_t t = 0; t < args.x.rows(); ++t)
    for (int64_t i = 0; i < args.x.size(1); ++i) {
      float& x = row_of(args.x, t)[i];
      x = static_cast<float>(cap * std::tanh(x / cap));
    }
}

}  // namespace pecia::kernels::reference
