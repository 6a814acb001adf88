// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {
namespace {

void copy_row(const SumRowsArgs& args, int64_t t) {
  const int64_t bytes = args.out.size(1) * size_of(args.out.dtype());
  const int32_t from = args.which[t];
  if (from < 0)
    std::memset(args.out.row(t), 0, bytes);
  else
    std::memcpy(args.out.row(t), args.x.row(from), bytes);
}

}  // namespace

void sum_rows(const SumRowsArgs& args) {
  const int64_t terms = args.terms();
  const bool adds = args.accumulate == Accumulate::yes;
  const bool largest = args.combine == CombineRows::largest;
  for (int64_t t = 0; t < args.out.rows(); ++t) {
    if (terms == 1 && !adds && !largest) {
      copy_row(args, t);
      continue;
    }
    for (int64_t i = 0; i < args.out.size(1); ++i) {
      double sum = 0;
      for (int64_t j = 0; j < terms; ++j)
        if (const int32_t from = args.which[t * terms + j]; from >= 0) {
          const double term = row_of(args.x, from)[i];
          sum = largest ? std::max(sum, term) : sum + term;
        }
      if (adds) sum += row_of(args.out, t)[i];
      row_of(args.out, t)[i] = static_cast<float>(sum);
    }
  }
}

}  // namespace pecia::kernels::reference
