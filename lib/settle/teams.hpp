// SPDX-License-Identifier: Apache-2.0
#pragma once
/// parallel.cp: auto, where a replica has several instances: are they one ring, or teams that
/// change?

#include "lib/settle/facts.hpp"

namespace pecia::settle {

/// `ring`, made elastic where parallel.cp is auto, no mode of the ring is named, and the batch is
/// expected to end more than 5 % sooner that way. Where arrivals are replayed, the mean time to the
/// first token decides instead. The reasons say what was expected. A continued run keeps what it
/// chose first, on the same degrees. This is the rule where no times are foreseen (layout.hpp).
///
/// The expectation comes from playing a part of the batch both ways (engine/schedule/simulate.hpp),
/// with times of passes that follow from the rates. Call it when the memory of the ring is settled.
/// Collective over all ranks, with the same result on each.
Settled choose_teams(const Facts& facts, const Rates& rates, Settled ring);

}  // namespace pecia::settle
