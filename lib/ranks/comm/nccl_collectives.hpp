// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Gathers and sums by NCCL, which chooses routes and orders itself. Another form is there for sums in
/// tree order (nccl_paired_collectives.hpp), and for gathers and scatters over several servers
/// (nccl_server_collectives.hpp). Traffic counts what
/// HostCollectives would send, whose routes are known.

#include <memory>
#include <vector>

#include "lib/ranks/comm/collectives.hpp"
#include "lib/ranks/comm/group_tree.hpp"
#include "lib/ranks/comm/nccl_queue.hpp"
#include "lib/ranks/comm/nccl_step_ranks.hpp"

namespace pecia::comm {

/// NCCL's own.
class NcclCollectives : public Collectives {
 public:
  /// `labels`: as in Communicator::make_collectives.
  /// Sums in steps are those of `one_shot`, if it is not null, where it takes them.
  NcclCollectives(std::shared_ptr<NcclQueue> queue, std::shared_ptr<NcclStepRanks> step_ranks,
                  const RankLabels& labels, std::shared_ptr<OneShot> one_shot = nullptr);

  /// NCCL chooses the route itself.
  Route route() const override { return Route::flat; }

  std::unique_ptr<Transfer> start_all_gather(std::vector<std::span<std::byte>> blocks) override;
  std::unique_ptr<Transfer> start_reduce_scatter(Addends partial, std::span<const int64_t> counts,
                                                 Addends mine) override;
  std::unique_ptr<Transfer> start_all_reduce(Addends values) override;
  std::unique_ptr<Transfer> start_all_reduce_in_step(Addends values) override;

  void progress() override { queue_->poll(); }

 protected:
  void count_all_gather(const std::vector<std::span<std::byte>>& blocks);
  void count_reduce_scatter(const Addends& partial, std::span<const int64_t> counts);

  std::shared_ptr<NcclQueue> queue_;
  const GroupTrees trees_;

 private:
  void count_all_reduce(const Addends& values);

  std::shared_ptr<NcclStepRanks> step_ranks_;
  /// Its calls follow each other on the computing stream, where steps are. Sums outside of steps are on
  /// another stream.
  std::shared_ptr<OneShot> one_shot_;
};

/// In a group of calls: brings each rank's own block to all ranks of `nccl`. One call if the blocks
/// are of one size and follow each other.
void call_all_gather(Nccl& nccl, std::span<const std::span<std::byte>> blocks,
                     device::Stream& stream);

/// In a group of calls: `mine` becomes the sum of the block of `own`, this rank of `nccl`. One call if
/// the blocks are of one size.
void call_reduce_scatter(Nccl& nccl, int own, const Addends& partial,
                         std::span<const int64_t> counts, const Addends& mine,
                         device::Stream& stream);

}  // namespace pecia::comm
