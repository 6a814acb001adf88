// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Gathers and scatters by NCCL in two steps, between servers and inside them
/// (ranks/parallel/link_costs.hpp says when that pays). What crosses is what HostCollectives lets
/// cross: each block once to each server, and each server's sum once to its owner.

#include "lib/base/device/buffer.hpp"
#include "lib/ranks/comm/nccl_collectives.hpp"

namespace pecia::comm {

/// With the i-th ranks of all servers as a rail:
///
///     all_gather        ranks of a rail exchange their blocks; then each server gathers all blocks
///     reduce_scatter    each server sums all blocks, the i-th rank those of its rail; then the rail
///                       sums these
///
/// Sums are added in another order than in a ring, and NCCL's own order is not known either. All-reduce
/// is NCCL's own. The groups of a server and of a rail are made on first use. These operations are
/// never in a step's graphs.
class NcclServerCollectives : public NcclCollectives {
 public:
  /// Blocks of which the largest has fewer than `least_block` bytes go as NCCL's own. The servers must
  /// be regular (ServerMap::is_regular), with several ranks each.
  NcclServerCollectives(std::shared_ptr<NcclQueue> queue, std::shared_ptr<NcclStepRanks> step_ranks,
                        const std::vector<int>& server_of_rank, int64_t least_block);
  NcclServerCollectives(const NcclServerCollectives&) = delete;
  NcclServerCollectives& operator=(const NcclServerCollectives&) = delete;
  ~NcclServerCollectives() override;

  Route route() const override { return Route::hierarchical; }

  std::unique_ptr<Transfer> start_all_gather(std::vector<std::span<std::byte>> blocks) override;
  std::unique_ptr<Transfer> start_reduce_scatter(Addends partial, std::span<const int64_t> counts,
                                                 Addends mine) override;

 private:
  void make_groups();

  int64_t least_block_;
  int width_, index_;  ///< ranks of a server, and this one's place among them
  std::unique_ptr<NcclPart> inside_, rail_;
  device::Buffer scratch_;  ///< sums of this server; safe to share: all transfers use one stream
};

}  // namespace pecia::comm
