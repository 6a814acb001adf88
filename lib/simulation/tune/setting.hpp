// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A setting of sparse attention, and what was measured with it. A loss is a difference to dense
/// attention in the mean negative log-likelihood of a text's own tokens, in nats per token.

#include <cstdint>
#include <string>

#include "lib/ranks/parallel/levels.hpp"
#include "lib/simulation/tune/deal.hpp"

namespace pecia::tune {

struct Setting {
  double drop = 0;  ///< share of the tokens that level 2 leaves out, the mean of layers and heads
  int levels = 2;
  parallel::Micros micros{1};  ///< micro-partitions of levels
  Deal deal = Deal::even;
  bool operator==(const Setting&) const = default;
};

/// "drop 0.20 by mass at 3 levels in 8, 2 parts".
std::string to_string(const Setting& setting);

/// A calibration prompt under dense attention.
struct DenseSample {
  std::string prompt;  ///< the request's id
  int64_t tokens = 0;
  double nll = 0;        ///< in nats per token
  double retrieval = 0;  ///< share of a passage's tokens that are found again (retrieval.hpp)
  double ttft_s = 0;     ///< the best of the runs that compute no likelihoods
};

/// A calibration prompt under sparse attention.
struct Sample {
  std::string prompt;
  int64_t tokens = 0;
  Setting setting;
  double nll = 0;           ///< in nats per token
  double loss = 0;          ///< nll less that of dense attention; may be below 0
  double loss_error = 0;    ///< standard error of the loss (paired_loss.hpp)
  double same_answers = 0;  ///< share of the answer's tokens that dense attention gives as well
  double retrieval = 0;     ///< as that of a dense sample
  double ttft_s = 0;        ///< the best of the runs that compute no likelihoods
};

}  // namespace pecia::tune
