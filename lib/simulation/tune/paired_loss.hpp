// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What sparse attention loses of one text, token by token beside dense attention.

#include <span>

namespace pecia::tune {

struct PairedLoss {
  double mean = 0;   ///< nats per token
  double error = 0;  ///< its standard error
};

/// Both have the negative log-likelihoods of the same tokens. The differences of 64 neighbouring
/// tokens are averaged first, since they are not independent, and the error follows from how these
/// means scatter. With fewer than two such means it is 0. Throws InvalidArgument for lists that are
/// empty or not equally long.
PairedLoss paired_loss(std::span<const double> dense, std::span<const double> sparse);

}  // namespace pecia::tune
