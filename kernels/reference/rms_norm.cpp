// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {

void rms_norm(const RmsNormArgs& args) {
  const int64_t width = args.x.size(1);
  for (int64_t t = 0; t < args.x.rows(); ++t) {
    const float* x = row_of(args.x, t);
    double squares = 0;
    if (args.squares)
      for (int64_t part = 0; part < args.squares.size(1); ++part)
        squares += row_of(args.squares, t)[part];
    else
      for (int64_t i = 0; i < width; ++i) squares += double{x[i]} * x[i];
    // As a sum in fp32 would be: doubles hold what that cannot.
    if (args.marks && !std::isfinite(static_cast<float>(squares)))
      if (int32_t& mark = static_cast<int32_t*>(args.marks.data())[t]; mark == 0) mark = args.mark;
    const int64_t over = args.squares ? args.whole_width : width;
    const double factor = 1 / std::sqrt(squares / static_cast<double>(over) + args.eps);
    for (int64_t i = 0; i < width; ++i)
      store_from_float(
          args.out.row(t), args.out.dtype(), i,
          static_cast<float>(x[i] * factor *
                             load_as_float(args.weight.data(), args.weight.dtype(), i)));
  }
}

}  // namespace pecia::kernels::reference
