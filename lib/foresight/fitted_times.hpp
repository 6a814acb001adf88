// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The times of a replica's passes on a described cluster, as the scheduler's simulation takes them.

#include "lib/foresight/request_time.hpp"
#include "lib/schedule/team_times.hpp"

namespace pecia::foresight {

/// Replays some passes of the replica, whose instances are one ring: chunks of prompts of up to
/// `longest` tokens, and steps of few and many sequences. It fits `times` to them as if they had been
/// measured. A ring that is chosen by rule counts as pass-KV. Throws as foresee does.
void fit_times(const Replica& replica, const machines::Cluster& cluster, int64_t longest,
               schedule::TeamTimes& times);

}  // namespace pecia::foresight
