// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {

void gated_activation(const GatedActivationArgs& args) {
  for (int64_t t = 0; t < args.out.rows(); ++t)
    for (int64_t i = 0; i < args.out.size(1); ++i) {
      const double gate = row_of(args.gate, t)[i];
      store_from_float(args.out.row(t), args.out.dtype(), i,
                       static_cast<float>(gate / (1 + std::exp(-gate)) * row_of(args.up, t)[i]));
    }
}

}  // namespace pecia::kernels::reference
