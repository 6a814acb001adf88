// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/nccl_paired_collectives.hpp"

#include <bit>
#include <utility>

#include "lib/base/core/error.hpp"

namespace pecia::comm {

NcclPairedCollectives::NcclPairedCollectives(std::shared_ptr<NcclQueue> queue,
                                             std::shared_ptr<NcclStepRanks> step_ranks,
                                             const RankLabels& labels)
    : NcclCollectives(std::move(queue), std::move(step_ranks), labels),
      scratch_(queue_->device(), device::Memory::device) {}

NcclPairedCollectives::~NcclPairedCollectives() {
  for (const auto& pair : pairs_) queue_->give_back(*pair);
}

std::unique_ptr<Transfer> NcclPairedCollectives::start_reduce_scatter(
    Addends partial, std::span<const int64_t> counts, Addends mine) {
  make_pairs();
  scratch_.reserve(std::ssize(partial.bytes()));
  const Addends sums(scratch_.data(), partial.dtype(), partial.count());
  for (const auto& pair : pairs_)
    for (const Addends& used : {partial, sums, mine}) pair->registered.use(used.bytes());
  return queue_->start_groups("reduce_scatter", "all ranks", [&](device::Stream& stream) {
    for (int level = 0; level < num_levels(); ++level) {
      const int bit = 1 << level;
      Nccl& pair = *pairs_[level]->nccl;
      pair.start_group();
      int64_t begin = 0;
      for (int owner = 0; owner < queue_->size(); begin += counts[owner++]) {
        if ((owner ^ queue_->rank()) % bit != 0 || counts[owner] == 0) continue;
        const auto of_block = [&](const Addends& all) { return all.part(begin, counts[owner]); };
        const Addends values = of_block(level == 0 ? partial : sums);
        const bool stays = ((owner ^ queue_->rank()) & bit) == 0;
        const bool last = level + 1 == num_levels();
        if (!stays) queue_->count(values.bytes().size(), queue_->rank() ^ bit);
        pair.reduce(values,
                    !stays ? Addends()
                    : last ? mine
                           : of_block(sums),
                    owner >> level & 1, stream);
      }
      pair.end_group();
    }
  });
}

std::unique_ptr<Transfer> NcclPairedCollectives::start_all_reduce(Addends values) {
  make_pairs();
  for (const auto& pair : pairs_) pair->registered.use(values.bytes());
  return queue_->start_groups("all_reduce", "all ranks", [&](device::Stream& stream) {
    if (values.empty()) return;
    for (int level = 0; level < num_levels(); ++level) {
      queue_->count(values.bytes().size(), queue_->rank() ^ 1 << level);
      Nccl& pair = *pairs_[level]->nccl;
      pair.start_group();
      pair.all_reduce(values, stream);
      pair.end_group();
    }
  });
}

void NcclPairedCollectives::make_pairs() {
  PECIA_CHECK(std::has_single_bit(static_cast<unsigned>(queue_->size())),
              "a sum of {} ranks in pairs", queue_->size());
  for (int bit = 1 << num_levels(); bit < queue_->size(); bit *= 2)
    pairs_.push_back(queue_->split_part(queue_->rank() & ~bit, queue_->rank()));
}

}  // namespace pecia::comm
