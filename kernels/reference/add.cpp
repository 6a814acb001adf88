// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {

void add(const AddArgs& args) {
  for (int64_t t = 0; t < args.y.rows(); ++t)
    for (int64_t i = 0; i < args.y.size(1); ++i)
      row_of(args.y, t)[i] =
          (row_of(args.y, t)[i] + load_as_float(args.x.row(t), args.x.dtype(), i)) * args.scale;
}

}  // namespace pecia::kernels::reference
