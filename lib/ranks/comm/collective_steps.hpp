// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Collectives as a sequence of exchanges, for servers whose links to each other are slower than
/// the links inside them, and racks likewise. Where the tree has one level, the result is the plain
/// collective: one exchange with every rank. Nothing here communicates.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lib/ranks/comm/addends.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/ranks/comm/group_tree.hpp"

namespace pecia::comm {

/// Works on the data that the previous exchange brought, and returns the next exchange. Each step
/// is called once, in order. `tree` outlives the steps.
using Step = std::function<Exchange()>;

/// The cuts of an all-reduce: as equal as can be, the first ones longer by one.
std::vector<int64_t> equal_cuts(int64_t total, int parts);

/// Numbers that reduce_scatter_steps needs scratch space for on `rank`.
int64_t reduce_scatter_scratch(const GroupTree& tree, int rank, std::span<const int64_t> counts);

/// Each block goes the ways of the tree. With servers alone it goes to the ranks of its own server and
/// to one rank, its delegate, on every other server. In the second exchange, the delegates pass it on
/// inside their servers.
std::vector<Step> all_gather_steps(const GroupTree& tree, int rank,
                                   std::vector<std::span<std::byte>> blocks);

/// Phantom tensors have no contents, so their sums are left out.
enum class Sums { computed, left_out };

/// The reverse way: first the partials of a server meet at the delegate of each block's owner. Then
/// one sum per server goes to the owner, or where racks count to the delegate of its rack, and one
/// sum per rack to the owner, which adds them up. Every sum follows the tree of Collectives, in
/// whatever order the messages arrive. `partial` and `mine` are as in
/// Collectives::start_reduce_scatter.
/// `scratch` has their type.
std::vector<Step> reduce_scatter_steps(const GroupTree& tree, int rank, Addends partial,
                                       std::span<const int64_t> counts, Addends mine,
                                       Addends scratch, Sums sums = Sums::computed);

}  // namespace pecia::comm
