// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The levels of sparse attention.

#include "lib/settle/facts.hpp"

namespace pecia::settle {

/// Before weights are loaded: what a tuned file says for the longest of the job's prompts goes into
/// job and resources (tune::settle_tuned). Absent where the job names no such file. Collective over
/// all ranks.
std::optional<tune::TunedQuestion> settle_tuned(const model::ModelConfig& config,
                                                const Ranks& ranks, resources::Resources& resources,
                                                job::Job& job);

/// What sparse attention leaves to the ring's rates. With a tuned file of a machine with other rates
/// the setting is chosen again, and then the memory is settled anew. Otherwise, where the job leaves
/// it open, it decides into how many micro-partitions levels are cut. Collective over all ranks.
/// Throws InputError where a goal cannot be met with these rates.
Settled settle_levels(const Facts& facts, const parallel::RingRates& rates, Settled settled);

}  // namespace pecia::settle
