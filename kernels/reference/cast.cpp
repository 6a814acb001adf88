// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {

void cast(const CastArgs& args) {
  for (int64_t t = 0; t < args.x.rows(); ++t)
    for (int64_t i = 0; i < args.x.size(1); ++i)
      store_from_float(args.out.row(t), args.out.dtype(), i,
                       load_as_float(args.x.row(t), args.x.dtype(), i));
}

}  // namespace pecia::kernels::reference
