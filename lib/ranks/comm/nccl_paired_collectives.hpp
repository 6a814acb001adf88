// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Sums by NCCL in the order that Collectives documents.

#include "lib/base/device/buffer.hpp"
#include "lib/ranks/comm/nccl_collectives.hpp"

namespace pecia::comm {

/// Level l adds a rank's sum and the sum of the rank that differs in bit l. The groups of two are made
/// on first use. Their sums are never in a step's graphs, since NCCL warns of deadlocks where graphs
/// have several groups.
class NcclPairedCollectives : public NcclCollectives {
 public:
  NcclPairedCollectives(std::shared_ptr<NcclQueue> queue, std::shared_ptr<NcclStepRanks> step_ranks,
                        const RankLabels& labels);
  NcclPairedCollectives(const NcclPairedCollectives&) = delete;
  NcclPairedCollectives& operator=(const NcclPairedCollectives&) = delete;
  ~NcclPairedCollectives() override;

  /// At each level, a block stays with the rank of the pair that can pass it on to its owner. At
  /// level l a rank still has the blocks whose owner has the same l lowest bits.
  std::unique_ptr<Transfer> start_reduce_scatter(Addends partial, std::span<const int64_t> counts,
                                                 Addends mine) override;
  std::unique_ptr<Transfer> start_all_reduce(Addends values) override;
  std::unique_ptr<Transfer> start_all_reduce_in_step(Addends values) override {
    return start_all_reduce(values);
  }

 private:
  int num_levels() const { return static_cast<int>(pairs_.size()); }
  void make_pairs();

  std::vector<std::unique_ptr<NcclPart>> pairs_;  ///< one per level
  device::Buffer scratch_;  ///< partial sums; safe to share, because all transfers use one stream
};

}  // namespace pecia::comm
