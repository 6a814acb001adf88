// SPDX-License-Identifier: Apache-2.0
#pragma once
/// parallel.phases: auto, and parallel.answering: auto. Do all instances read and answer, or some only
/// read for others, and how many then answer?

#include "lib/settle/facts.hpp"

namespace pecia::settle {

/// `begun`, with the number of instances that answer where phases are apart and the job does not say
/// it: the one with which the batch is expected to end first. With phases: auto none, unless that is
/// more than 5 % sooner. Where arrivals are replayed, the mean time to the first token decides instead.
/// The reasons say what was expected. A continued run keeps what it chose first, on the same degrees.
/// Call it when the memory is settled. Collective over all ranks, with the same result on each.
Settled choose_phases(const Facts& facts, const Rates& rates, Settled begun);

}  // namespace pecia::settle
