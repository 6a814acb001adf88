// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Gathers and sums tensors over a group without blocking. The host's collectives are built of
/// point-to-point messages, so the communicator counts exactly the bytes that travel.
///
/// On the flat route every rank exchanges with every other. On the hierarchical route, data that
/// ranks of one server have in common crosses to another server only once. Take N ranks on S
/// servers, L(r) of them on the server of rank r, and blocks of b(r) bytes that are B bytes
/// together. Then all ranks together send
///
///                                     between servers, flat        hierarchical    anywhere, both
///     all_gather, reduce_scatter      Σ b(r) · (N - L(r))          (S-1) · B       (N-1) · B
///     all_reduce of B bytes           twice that, b(r) = B / N     2 (S-1) · B     2 (N-1) · B
///
/// Example: with two servers of 4 ranks, 4 B cross between the servers on the flat route, and 1 B
/// on the hierarchical route. A rank r of server s sends the bytes below. D(r) are the ranks of
/// other servers for which r is the delegate on its server (ServerMap):
///
///                                     to other servers             inside its server
///     all_gather, flat                b(r) · (N - L(r))            b(r) · (L(r)-1)
///     all_gather, hierarchical        b(r) · (S-1)                 (b(r) + Σ_D(r) b) · (L(r)-1)
///     reduce_scatter, flat            Σ b of other servers         Σ b of its server - b(r)
///     reduce_scatter, hierarchical    Σ_D(r) b                     B - b(r) - Σ_D(r) b
///
/// Where racks count (RankLabels), blocks of RankLabels::least_block_by_racks or more go by these, too
/// (group_tree.hpp). With R racks of S/R servers, all ranks together then send · B between racks
/// in place of (S - S/R) · B.
///
/// Sums are added in pairs of neighbours, then the pairs' sums are added in pairs, and so on. When
/// the number is odd, the last one waits for the next level. With 5 ranks:
///
///     ((0 + 1) + (2 + 3)) + 4
///
/// The hierarchical route has one such tree over the ranks of each server, one over the servers (by
/// racks: over those of each rack), and by racks one over these, in the order of their lowest ranks.
/// Where sums_as_flat is true of servers and racks, these are the same additions and hence the same
/// bits.
///
/// Where the numbers are bf16, the host adds them in fp32 and rounds a sum when it is to travel: once
/// on the flat route, and also the sums of servers and racks on the hierarchical one. NCCL rounds
/// after each addition of its route.
///
/// NCCL chooses its own routes and orders, but for gathers and scatters of large blocks over servers
/// with slow links (nccl_server_collectives.hpp). With SumOrder::tree it is asked for one level of the
/// tree after the other. Each level is a sum of two ranks, which has only one order. The number of
/// ranks must then be a power of two.
///
/// A collective consists of up to six exchanges in turn. The next one starts when a call finds the
/// previous one finished: test() or wait() of any transfer of the same Collectives, or progress().
/// So poll while computing. All ranks must wait in the same order for transfers of different
/// Collectives or of the communicator itself. Transfers of one Collectives may be waited for in any
/// order.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lib/ranks/comm/addends.hpp"
#include "lib/ranks/comm/communicator.hpp"

namespace pecia::comm {

enum class Route { flat, hierarchical };

/// Made by Communicator::make_collectives. The calls are collective like the communicator's: every
/// rank of the group starts the same ones in the same order. Several may be under way. Buffers are
/// in the memory that the group's transfers work on, and stay untouched until the transfer is done.
/// Not thread-safe: one thread uses it at a time.
class Collectives {
 public:
  virtual ~Collectives() = default;

  virtual Route route() const = 0;

  /// blocks[r] is where rank r's bytes go. Sizes are the same on every rank and may be zero; blocks
  /// do not overlap. The block of this rank is already filled.
  virtual std::unique_ptr<Transfer> start_all_gather(std::vector<std::span<std::byte>> blocks) = 0;

  /// `partial` holds the blocks of all ranks one after the other, counts[r] numbers each; zero is
  /// allowed. `mine` receives the sum over all ranks of this rank's block. It has the same type, and
  /// is that block inside `partial`, or does not overlap `partial`.
  virtual std::unique_ptr<Transfer> start_reduce_scatter(Addends partial,
                                                         std::span<const int64_t> counts,
                                                         Addends mine) = 0;

  /// Every value becomes the sum over ranks, bitwise the same on every rank. This is a
  /// reduce-scatter over N cuts whose lengths differ by at most one (the first ones are longer),
  /// then an all-gather.
  virtual std::unique_ptr<Transfer> start_all_reduce(Addends values) = 0;

  /// Does the same for a caller that does not measure the wait by itself. So in a step the sum may
  /// be held back with the ops around it (Transfer::is_held_back).
  virtual std::unique_ptr<Transfer> start_all_reduce_in_step(Addends values) {
    return start_all_reduce(values);
  }

  /// Advances all transfers under way as far as possible without waiting. Sums that are due are
  /// computed here.
  virtual void progress() = 0;
};

}  // namespace pecia::comm
