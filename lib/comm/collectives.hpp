// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Gathering and summing tensors over a group without blocking, built of point-to-point messages,
/// so that what the communicator counts is what travels.
///
/// Flat, every rank exchanges with every other. Hierarchically, what ranks of one server have in
/// common crosses to another server once. With N ranks on S servers, L(r) of them on r's server,
/// blocks of b(r) bytes that are B together, all ranks together send
///
///                                     between servers, flat        hierarchical    anywhere, both
///     all_gather, reduce_scatter      Σ b(r) · (N - L(r))          (S-1) · B       (N-1) · B
///     all_reduce of B bytes           twice that, b(r) = B / N     2 (S-1) · B     2 (N-1) · B
///
/// Two servers of 4 ranks: flat 4 B cross between them, hierarchically 1 B. A rank r of server s
/// sends, where D(r) are the ranks of other servers that it is its server's delegate for
/// (ServerMap):
///
///                                     to other servers             inside its server
///     all_gather, flat                b(r) · (N - L(r))            b(r) · (L(r)-1)
///     all_gather, hierarchical        b(r) · (S-1)                 (b(r) + Σ_D(r) b) · (L(r)-1)
///     reduce_scatter, flat            Σ b of other servers         Σ b of its server - b(r)
///     reduce_scatter, hierarchical    Σ_D(r) b                     B - b(r) - Σ_D(r) b
///
/// Sums are added in pairs of neighbours, the pairs' sums likewise; of an odd number the last one
/// waits for the next level. 5 ranks:
///
///     ((0 + 1) + (2 + 3)) + 4
///
/// Hierarchically there is one such tree over the ranks of each server, then one over the servers,
/// in the order of their lowest ranks: the same additions, hence the same bits, where sums_as_flat.
///
/// NCCL finds ways and orders of its own. With SumOrder::tree it is asked for one level of the tree
/// after the other, each a sum of two ranks, which has one order; then the number of ranks is a
/// power of two.
///
/// A collective is up to four exchanges in turn. The next one starts when some call finds the one
/// before finished: test() or wait() of any transfer of the same Collectives, or progress(). So
/// poll while computing; and let all ranks wait for transfers of different Collectives or of the
/// communicator itself in the same order. Transfers of one Collectives may be waited for in any
/// order.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lib/comm/communicator.hpp"

namespace pecia::comm {

enum class Route { flat, hierarchical };

/// Collective, as the communicator's own: every rank of the group starts the same ones in the same
/// order. Several may be under way. Buffers, in the memory that the group's transfers work on, stay
/// untouched until the transfer is done. One thread at a time. Made by
/// Communicator::make_collectives.
class Collectives {
 public:
  virtual ~Collectives() = default;

  virtual Route route() const = 0;

  /// blocks[r] is where rank r's bytes belong: the same sizes on every rank, zero allowed, no two
  /// of them overlapping. The own block is filled already.
  virtual std::unique_ptr<Transfer> start_all_gather(std::vector<std::span<std::byte>> blocks) = 0;

  /// `partial` is the blocks of all ranks one after the other, counts[r] floats each, zero allowed.
  /// mine[i] is the sum of all ranks' values of the own block. `mine` is the own block inside
  /// `partial`, or does not overlap it.
  virtual std::unique_ptr<Transfer> start_reduce_scatter(std::span<const float> partial,
                                                         std::span<const int64_t> counts,
                                                         std::span<float> mine) = 0;

  /// Every value becomes the sum over ranks, bitwise the same on every rank: a reduce-scatter over
  /// N cuts whose lengths differ by one at most (the first ones are longer), then an all-gather.
  virtual std::unique_ptr<Transfer> start_all_reduce(std::span<float> values) = 0;

  /// Moves all transfers under way on as far as they get without waiting. Sums that are due are
  /// computed here.
  virtual void progress() = 0;
};

}  // namespace pecia::comm
