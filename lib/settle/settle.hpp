// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a job leaves to `auto`, stage by stage: the layout (layout.hpp) before weights are loaded,
/// memory (memory.hpp) when inputs are read, teams and levels when rates are known, and last what is
/// measured on the replica. A continued run finds what it chose at first in `facts.kept`.

#include <spdlog/logger.h>

#include "lib/engine/execute/replica.hpp"
#include "lib/settle/facts.hpp"
#include "lib/settle/layout.hpp"
#include "lib/settle/measure/measured.hpp"
#include "lib/settle/measure/product_choice.hpp"

namespace pecia::settle {

/// The rates of the replica's rings, kept or measured now, where a choice depends on them. `tensors`:
/// the ranks of the replica, for tensors where `compute` is. Collective over all ranks; the same on
/// every rank.
parallel::RingRates ring_rates(const Facts& facts, const resources::Resources& resources,
                               comm::Communicator& tensors, const attention::Compute& compute,
                               spdlog::logger& log);

/// One ring or teams, then levels. `begun` has its memory. Collective over all ranks; throws
/// InputError where a goal cannot be met.
Settled settle(const Facts& facts, const Rates& rates, Settled begun);

/// Up to how many rows a step is shifted, measured on the replica, or what an earlier start
/// kept, together with the choices that a later start has to repeat: `layout` and `products`.
/// Collective over all ranks; the same on every rank.
measure::Measured measured_choices(const Facts& facts, const Settled& settled,
                                   const parallel::RingRates& rates,
                                   const parallel::LinkCosts& links, const LayoutChoice& layout,
                                   const measure::ProductChoice& products,
                                   execute::Replica& replica);

}  // namespace pecia::settle
