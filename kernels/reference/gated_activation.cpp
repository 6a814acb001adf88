// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numbers>

#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {
namespace {

double activated(double gate, double up, Activation activation) {
  switch (activation) {
    case Activation::silu:
      return gate / (1 + std::exp(-gate)) * up;
    case Activation::gelu_tanh:
      return gate / 2 *
             (1 +
              std::tanh(std::sqrt(2 / std::numbers::pi) * (gate + 0.044715 * gate * gate * gate))) *
             up;
    case Activation::clamped: {
      // Compared so that NaN stays.
      const double least = gate > 7 ? 7 : gate, bounded = up > 7 ? 7 : up < -7 ? -7 : up;
      return least / (1 + std::exp(-1.702 * least)) * (bounded + 1);
    }
  }
  fail<InvalidArgument>("activation of number {}", static_cast<int>(activation));
}

}  // namespace

void gated_activation(const GatedActivationArgs& args) {
  const DType type = args.gate.dtype();
  for (int64_t t = 0; t < args.out.rows(); ++t)
    for (int64_t i = 0; i < args.out.size(1); ++i)
      store_from_float(
          args.out.row(t), args.out.dtype(), i,
          static_cast<float>(activated(load_as_float(args.gate.row(t), type, i),
                                       load_as_float(args.up.row(t), type, i), args.activation)));
}

}  // namespace pecia::kernels::reference
