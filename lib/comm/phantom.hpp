// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One rank of a group whose other ranks do not exist. Messages have sizes and peers but no
/// contents, and take no time. The traffic is the traffic of that rank in a real group.

#include <functional>
#include <memory>

#include "lib/comm/communicator.hpp"

namespace pecia::comm {

/// Called for every message when it is sent.
using OnMessage = std::function<void(int64_t bytes)>;

/// Makes rank `rank` of `size`. Transfers touch no buffer and are done at once; sums are left out.
/// Exchanges of small values (all_gather, all_reduce_…) return what they would if every rank had
/// given this rank's value. A broadcast from another root leaves the bytes unchanged.
/// Communicator::part makes groups from lists of ranks. split, split_by_host and shared counters
/// throw Unsupported, because they need answers from other ranks. `on_message`, if any, is also
/// called for messages of the parts.
std::unique_ptr<Communicator> make_phantom_communicator(int rank, int size,
                                                        OnMessage on_message = {});

}  // namespace pecia::comm
