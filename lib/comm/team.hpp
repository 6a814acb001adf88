// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Groups of any ranks of a communicator, in any order, made without a word to anybody: teams that
/// change with every iteration cost microseconds.

#include <memory>
#include <vector>

#include "lib/comm/communicator.hpp"

namespace pecia::comm {

/// Ranks of `parent` as a group of their own: its rank i is ranks[i]. Every member makes it alike,
/// from the same list and `series`; nobody else takes part, and nothing is sent. `parent` outlives
/// it, and does nothing else than serve teams.
///
/// All its calls are messages between two ranks, by the parent's start_send_receive and
/// start_exchange, and work on the memory that these work on; sums are made on the host. `series`,
/// 0 or more, keeps messages of teams apart that may be under way at the same time: those of teams
/// that follow each other may have the same one, if each member waits for its transfers of the one
/// before it starts any of the next.
///
/// Errors name ranks of the parent. It has no parts (split) and no shared counters: Unsupported.
/// InvalidArgument where this rank is not in the list, or one is there twice or not in the parent.
std::unique_ptr<Communicator> make_team(Communicator& parent, std::vector<int> ranks,
                                        int64_t series = 0);

}  // namespace pecia::comm
