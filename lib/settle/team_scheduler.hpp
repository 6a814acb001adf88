// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Chooses how requests get instances where teams change (parallel.scheduler: auto).

#include "lib/settle/facts.hpp"

namespace pecia::settle {

/// Returns the other scheduler than the objective's own (resources::resolve_grid) where it should take
/// clearly less time by rates of this machine. `begun` has its memory and its phases. Collective over
/// all ranks.
Settled choose_scheduler(const Facts& facts, const Rates& rates, Settled begun);

}  // namespace pecia::settle
