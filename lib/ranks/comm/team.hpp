// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Groups of any ranks of a communicator, in any order, made without communication. So a change of
/// teams in every iteration costs only microseconds.

#include <memory>
#include <vector>

#include "lib/ranks/comm/communicator.hpp"

namespace pecia::comm {

/// Makes a group of ranks of `parent`; rank i of the group is ranks[i]. Every member calls this
/// with the same list, and with the same `serial`, which is higher than in all earlier teams that
/// any of them was in. No other rank takes part, and nothing is sent. `parent` outlives the group.
///
/// All calls of the group are messages between two ranks, sent by the parent's start_send_receive
/// and start_exchange, and work on the memory that these work on. Sums are made on the host. Hence
/// where tensors travel by NCCL, they take the way through host memory in the team's Collectives,
/// whose messages on_host() counts. NCCL's own sums belong to groups that a collective call made:
/// the ranks of an instance are such a group, and no team changes it.
/// A rank has one team at a time: it waits for its transfers in one before it makes the next, or
/// before all ranks use the parent again, which they first tell it with enter_team(0, 0).
///
/// Errors name ranks of the parent. Groups cannot be split and have no shared counters; these calls
/// throw Unsupported. Throws InvalidArgument when this rank is not in the list, or when a rank is
/// in it twice or is not in the parent.
std::unique_ptr<Communicator> make_team(Communicator& parent, std::vector<int> ranks,
                                        int64_t serial);

}  // namespace pecia::comm
