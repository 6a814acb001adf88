// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Collectives as exchanges in turn, over servers that reach each other by slower links. Where
/// every rank is a server of its own, these are the plain collectives: one exchange with everybody.
/// Nothing here communicates.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lib/comm/communicator.hpp"
#include "lib/comm/server_map.hpp"

namespace pecia::comm {

/// Works on what the exchange before has brought and says what to exchange next. Steps are called
/// once each, in order, and `servers` outlives them.
using Step = std::function<Exchange()>;

/// Floats of scratch space that reduce_scatter_steps needs on `rank`.
int64_t reduce_scatter_scratch(const ServerMap& servers, int rank, std::span<const int64_t> counts);

/// First each block goes to the ranks of its server and to one rank, its delegate, of every other;
/// delegates then pass it on inside theirs.
std::vector<Step> all_gather_steps(const ServerMap& servers, int rank,
                                   std::vector<std::span<std::byte>> blocks);

/// Phantoms' tensors have no contents to add.
enum class Sums { computed, left_out };

/// The way back: first the partials of a server meet at the delegate of each block's owner; then
/// one sum per server goes to the owner, who adds them up. Every sum is the tree of Collectives,
/// whatever arrives first. `partial` and `mine` as there.
std::vector<Step> reduce_scatter_steps(const ServerMap& servers, int rank,
                                       std::span<const float> partial,
                                       std::span<const int64_t> counts, std::span<float> mine,
                                       std::span<float> scratch, Sums sums = Sums::computed);

}  // namespace pecia::comm
