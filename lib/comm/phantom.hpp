// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One rank of a group whose other ranks are not there. Messages have sizes and peers, no contents,
/// and take no time: what a rank of any group sends is what it counts.

#include <functional>
#include <memory>

#include "lib/comm/communicator.hpp"

namespace pecia::comm {

/// Is told of every message as it is sent.
using OnMessage = std::function<void(int64_t bytes, LinkLevel level)>;

/// Rank `rank` of `size`. Transfers touch no buffer and are done at once; sums are left out.
/// Exchanges of small values (all_gather, all_reduce_…) are answered as if every rank had given
/// what this one gave; a broadcast of another root leaves the bytes as they are. Its parts are made
/// from lists of ranks (Communicator::part); split, split_by_host and shared counters, which ask
/// the others: Unsupported.
/// `on_message`, if any, is told of the parts' messages too.
std::unique_ptr<Communicator> make_phantom_communicator(int rank, int size,
                                                        OnMessage on_message = {});

}  // namespace pecia::comm
