// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {

void pick_rows(const PickRowsArgs& args) {
  for (const auto& [from, rows, to] : args.picks)
    for (int64_t i = 0; i < to.rows(); ++i) {
      const void* const row = from.row(rows ? rows.as<int32_t>()[i] : i);
      if (from.dtype() == to.dtype())
        std::memcpy(to.row(i), row, to.size(1) * size_of(to.dtype()));
      else
        for (int64_t j = 0; j < to.size(1); ++j)
          store_from_float(to.row(i), to.dtype(), j, load_as_float(row, from.dtype(), j));
    }
}

}  // namespace pecia::kernels::reference
