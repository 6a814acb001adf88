// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numbers>

#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {
namespace {

double activated(double gate, double up, Activation activation) {
  switch (activation.kind) {
    case Activation::Kind::silu:
      return gate / (1 + std::exp(-gate)) * up;
    case Activation::Kind::gelu_tanh:
      return gate / 2 *
             (1 +
              std::tanh(std::sqrt(2 / std::numbers::pi) * (gate + 0.044715 * gate * gate * gate))) *
             up;
    case Activation::Kind::clamped: {
      // Compared so that NaN stays.
      const double limit = activation.limit, least = gate > limit ? limit : gate;
      const double bounded = up > limit ? limit : up < -limit ? -limit : up;
      return least / (1 + std::exp(-activation.slope * least)) * (bounded + 1);
    }
    case Activation::Kind::sigmoid:
      return up / (1 + std::exp(-gate));
    case Activation::Kind::relu:
      return (gate < 0 ? 0 : gate) * up;
  }
  fail<InvalidArgument>("activation of number {}", static_cast<int>(activation.kind));
}

}  // namespace

void gated_activation(const GatedActivationArgs& args) {
  const DType type = args.gate.dtype();
  const int64_t step = args.gate.size(1) == 1 ? 0 : 1;
  for (int64_t t = 0; t < args.out.rows(); ++t)
    for (int64_t i = 0; i < args.out.size(1); ++i)
      store_from_float(
          args.out.row(t), args.out.dtype(), i,
          static_cast<float>(activated(load_as_float(args.gate.row(t), type, i * step),
                                       load_as_float(args.up.row(t), type, i), args.activation)));
}

}  // namespace pecia::kernels::reference
