// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Gathering and summing of tensors as the layers do it.

#include "apps/bench/comm/patterns.hpp"
#include "lib/ranks/comm/collectives.hpp"

namespace pecia::bench {

/// Both patterns handle `bytes` of fp32, cut into equal blocks by rank. `servers` is as in
/// Collectives.
std::unique_ptr<Pattern> make_tensor_all_gather(comm::Communicator& world,
                                                const std::vector<int>& servers, int64_t bytes);
std::unique_ptr<Pattern> make_reduce_scatter(comm::Communicator& world,
                                             const std::vector<int>& servers, int64_t bytes);
/// Sums in place. Each run begins by copying the values in, and its time includes the copy.
std::unique_ptr<Pattern> make_all_reduce(comm::Communicator& world, const std::vector<int>& servers,
                                         int64_t bytes);

}  // namespace pecia::bench
