// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Gathers and scatters by NCCL in steps, between racks, between servers and inside them
/// (ranks/parallel/link_costs.hpp says when that pays). What crosses is what HostCollectives lets
/// cross: each block once to each server, and each server's sum once to its owner; by racks, once to
/// each rack and from each rack.

#include "lib/base/device/buffer.hpp"
#include "lib/ranks/comm/nccl_collectives.hpp"

namespace pecia::comm {

/// With the i-th ranks of all servers as a rail:
///
///     all_gather        ranks of a rail exchange their blocks; then each server gathers all blocks
///     reduce_scatter    each server sums all blocks, the i-th rank those of its rail; then the rail
///                       sums these
///
/// By racks the rail is two: ranks in the same place of all racks exchange their blocks, or come
/// last in sums; ranks of the rail in one rack exchange what these have, or come before them.
///
/// Sums are added in another order than in a ring, and NCCL's own order is not known either. All-reduce
/// is NCCL's own. The groups of a server and of rails are made on first use. These operations are
/// never in a step's graphs.
class NcclServerCollectives : public NcclCollectives {
 public:
  /// Blocks of which the largest has fewer than `least_block` bytes go as NCCL's own. The servers must
  /// be regular (ServerMap::is_regular), with several ranks each. Nothing goes by racks that are not.
  NcclServerCollectives(std::shared_ptr<NcclQueue> queue, std::shared_ptr<NcclStepRanks> step_ranks,
                        const RankLabels& labels, int64_t least_block);
  NcclServerCollectives(const NcclServerCollectives&) = delete;
  NcclServerCollectives& operator=(const NcclServerCollectives&) = delete;
  ~NcclServerCollectives() override;

  Route route() const override { return Route::hierarchical; }

  std::unique_ptr<Transfer> start_all_gather(std::vector<std::span<std::byte>> blocks) override;
  std::unique_ptr<Transfer> start_reduce_scatter(Addends partial, std::span<const int64_t> counts,
                                                 Addends mine) override;

 private:
  /// The ranks that differ from this one by multiples of `stride`.
  struct Rail {
    int stride, count;
    int place;  ///< of this rank
    std::unique_ptr<NcclPart> ranks = {};
  };
  using Rails = std::vector<Rail>;  ///< from the outermost

  Rail rail(int stride, int count) const {
    return {stride, count, queue_->rank() / stride % count};
  }
  Rails& rails_of(int64_t largest_block) {
    return by_racks_.empty() || largest_block < least_block_by_racks_ ? by_servers_ : by_racks_;
  }
  void make_group(Rail& rail);

  int64_t least_block_, least_block_by_racks_;
  int width_;  ///< ranks of a server
  Rail inside_;
  Rails by_servers_, by_racks_;
  device::Buffer scratch_;  ///< sums of this server; safe to share: all transfers use one stream
};

}  // namespace pecia::comm
