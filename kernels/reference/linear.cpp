#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {

void linear(const LinearArgs& args) {
  for (int64_t t = 0; t < args.y.rows(); ++t)
    for (int64_t o = 0; o < args.y.size(1); ++o) {
      double sum = args.bias ? load_as_float(args.bias.data(), args.bias.dtype(), o) : 0.0;
      if (args.accumulate == Accumulate::yes) sum += row_of(args.y, t)[o];
      for (int64_t i = 0; i < args.x.size(1); ++i)
        sum += double{row_of(args.x, t)[i]} *
               load_as_float(args.weight.row(o), args.weight.dtype(), i);
      row_of(args.y, t)[o] = static_cast<float>(sum);
    }
}

}  // namespace pecia::kernels::reference
