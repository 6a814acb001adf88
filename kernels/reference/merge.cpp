// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {

void merge(const MergeArgs& args) {
  const int64_t heads = args.out.size(1), head_dim = args.out.size(2);
  const auto part_out = [&](int64_t part, int64_t i) {
    return load_as_float(args.part_out.row(part), args.part_out.dtype(), i);
  };
  for (int64_t p = 0; p < args.part_out.rows(); ++p) {
    const int64_t r = args.rows.empty() ? p : args.rows[p];
    for (int64_t h = 0; h < heads; ++h) {
      float& lse = row_of(args.lse, r)[h];
      const double mine = lse, theirs = row_of(args.part_lse, p)[h];
      if (theirs == empty_lse) continue;  // also when both are empty, where m would be −inf
      if (mine == empty_lse) {            // the formula, but for the sign of a zero
        for (int64_t i = h * head_dim; i < (h + 1) * head_dim; ++i)
          row_of(args.out, r)[i] = part_out(p, i);
        lse = row_of(args.part_lse, p)[h];
        continue;
      }
      const double m = std::max(mine, theirs);
      const double mine_weight = std::exp(mine - m), their_weight = std::exp(theirs - m);
      for (int64_t i = h * head_dim; i < (h + 1) * head_dim; ++i) {
        float& out = row_of(args.out, r)[i];
        out = static_cast<float>((out * mine_weight + part_out(p, i) * their_weight) /
                                 (mine_weight + their_weight));
      }
      lse = static_cast<float>(m + std::log(mine_weight + their_weight));
    }
  }
}

}  // namespace pecia::kernels::reference
