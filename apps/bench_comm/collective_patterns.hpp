// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Gathering and summing of tensors as the layers do it.

#include "apps/bench_comm/patterns.hpp"
#include "lib/comm/collectives.hpp"

namespace pecia::bench {

/// Each over `bytes` of fp32, cut into equal blocks by rank; `servers` as Collectives has them.
std::unique_ptr<Pattern> make_tensor_all_gather(comm::Communicator& world,
                                                const std::vector<int>& servers, int64_t bytes);
std::unique_ptr<Pattern> make_reduce_scatter(comm::Communicator& world,
                                             const std::vector<int>& servers, int64_t bytes);
/// In place: each run begins by copying the values in, which is timed with it.
std::unique_ptr<Pattern> make_all_reduce(comm::Communicator& world, const std::vector<int>& servers,
                                         int64_t bytes);

}  // namespace pecia::bench
