// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Keys or queries by times that were measured of both: pecia topology keeps a rule with the
/// description of these ranks, for the heads of a job's model (measure/ring_times.hpp).

#include <optional>

#include "lib/model/attention/compute.hpp"
#include "lib/ranks/parallel/fitted_rule.hpp"
#include "lib/settle/facts.hpp"

namespace pecia::settle {

/// The rule for rings like the one of `resources`, to which it adds the reason, or the rule of an earlier
/// start. Absent where no ring is chosen by rule, where none is kept of such rings, and where an
/// earlier start had none. Collective over all ranks; the same on every rank.
std::optional<parallel::FittedRule> fitted_rule(const Facts& facts,
                                                const attention::Compute& compute,
                                                resources::Resources& resources);

}  // namespace pecia::settle
