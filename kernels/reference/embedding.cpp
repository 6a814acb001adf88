// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {

void embedding(const EmbeddingArgs& args) {
  for (int64_t t = 0; t < args.out.rows(); ++t)
    for (int64_t i = 0; i < args.out.size(1); ++i)
      row_of(args.out, t)[i] =
          args.table_row(t) < 0
              ? -0.0f
              : load_as_float(args.table.row(args.table_row(t)), args.table.dtype(), i) *
                    args.scale;
}

}  // namespace pecia::kernels::reference
