// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the choices of a run rest on, and what they become.

#include <optional>
#include <string>

#include "lib/model/config/config.hpp"
#include "lib/ranks/parallel/ring_rule.hpp"
#include "lib/settle/ranks.hpp"
#include "lib/simulation/tune/tuned_setting.hpp"
#include "lib/work/batch/inputs.hpp"
#include "lib/work/job/job.hpp"
#include "lib/work/resources/compute_place.hpp"

namespace pecia::settle {

/// Known when weights and inputs are read; no choice changes it.
struct Facts {
  const model::ModelConfig& config;
  const Ranks& ranks;
  const resources::ComputePlace& place;
  DType matrices, embedding;    ///< resident types of the weights
  const batch::Inputs* inputs;  ///< on planning ranks; null elsewhere
  const std::string& kept;      ///< measurement of an earlier start; "": there is none
  const std::optional<tune::TunedQuestion>& tuned;
};

/// Speeds that this start has measured, or that an earlier one kept.
struct Rates {
  parallel::RingRates ring;
  double product_flops = 0;  ///< FLOP/s of the matrix products of all ranks
};

/// The values so far. Each stage takes one and returns the next; `resources` carries the reasons.
struct Settled {
  job::Job job;  ///< with all that was chosen in its place
  resources::Resources resources;
};

}  // namespace pecia::settle
