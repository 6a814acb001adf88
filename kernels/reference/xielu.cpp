// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {
namespace {

double xielu_of(double x, const XieluCurve& curve) {
  if (x > 0) return curve.positive * x * x + curve.slope * x;
  const double bounded = x > curve.most ? double{curve.most} : x;  // compared so that NaN stays
  return curve.negative * (std::expm1(bounded) - x) + curve.slope * x;
}

}  // namespace

void xielu(const XieluArgs& args) {
  for (int64_t t = 0; t < args.out.rows(); ++t)
    for (int64_t i = 0; i < args.out.size(1); ++i)
      store_from_float(args.out.row(t), args.out.dtype(), i,
                       static_cast<float>(xielu_of(row_of(args.x, t)[i], args.curve)));
}

}  // namespace pecia::kernels::reference
