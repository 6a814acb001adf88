// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/nccl_collectives.hpp"

#include <algorithm>
#include <utility>

#include "lib/ranks/comm/collective_steps.hpp"

namespace pecia::comm {

namespace {

/// The memory of all blocks, if they are of one size and follow each other; else empty.
std::span<std::byte> whole_of(std::span<const std::span<std::byte>> blocks) {
  const std::span<std::byte> first = blocks.front();
  for (size_t rank = 0; rank < blocks.size(); ++rank)
    if (blocks[rank].size() != first.size() ||
        blocks[rank].data() != first.data() + rank * first.size())
      return {};
  return {first.data(), blocks.size() * first.size()};
}

void count_steps(NcclQueue& queue, const std::vector<Step>& steps) {
  for (const Step& step : steps)
    for (const auto& [bytes, to] : step().sends) queue.count(bytes.size(), to);
}

}  // namespace

void call_all_gather(Nccl& nccl, std::span<const std::span<std::byte>> blocks,
                     device::Stream& stream) {
  if (const std::span<std::byte> whole = whole_of(blocks); !whole.empty())
    return nccl.all_gather(whole, stream);
  for (size_t root = 0; root < blocks.size(); ++root)
    if (!blocks[root].empty()) nccl.broadcast(blocks[root], static_cast<int>(root), stream);
}

void call_reduce_scatter(Nccl& nccl, int own, const Addends& partial,
                         std::span<const int64_t> counts, const Addends& mine,
                         device::Stream& stream) {
  const bool equal = std::ranges::all_of(counts, [&](int64_t n) { return n == counts[0]; });
  if (equal && counts[0] > 0) return nccl.reduce_scatter(partial, mine, stream);
  int64_t begin = 0;
  for (size_t root = 0; root < counts.size(); ++root) {
    const Addends block = partial.part(begin, counts[root]);
    begin += counts[root];
    const auto rank = static_cast<int>(root);
    if (!block.empty()) nccl.reduce(block, rank == own ? mine : Addends(), rank, stream);
  }
}

NcclCollectives::NcclCollectives(std::shared_ptr<NcclQueue> queue,
                                 std::shared_ptr<NcclStepRanks> step_ranks,
                                 const RankLabels& labels, std::shared_ptr<OneShot> one_shot)
    : queue_(std::move(queue)),
      trees_(labels),
      step_ranks_(std::move(step_ranks)),
      one_shot_(std::move(one_shot)) {}

std::unique_ptr<Transfer> NcclCollectives::start_all_gather(
    std::vector<std::span<std::byte>> blocks) {
  count_all_gather(blocks);
  for (const auto& block : blocks) queue_->use(block);
  return queue_->start("all_gather", "all ranks", [&](Nccl& nccl, device::Stream& stream) {
    call_all_gather(nccl, blocks, stream);
  });
}

std::unique_ptr<Transfer> NcclCollectives::start_reduce_scatter(Addends partial,
                                                                std::span<const int64_t> counts,
                                                                Addends mine) {
  count_reduce_scatter(partial, counts);
  queue_->use(partial.bytes());
  queue_->use(mine.bytes());
  return queue_->start("reduce_scatter", "all ranks", [&](Nccl& nccl, device::Stream& stream) {
    call_reduce_scatter(nccl, queue_->rank(), partial, counts, mine, stream);
  });
}

std::unique_ptr<Transfer> NcclCollectives::start_all_reduce(Addends values) {
  count_all_reduce(values);
  queue_->use(values.bytes());
  return queue_->start("all_reduce", "all ranks", [&](Nccl& nccl, device::Stream& stream) {
    if (!values.empty()) nccl.all_reduce(values, stream);
  });
}

std::unique_ptr<Transfer> NcclCollectives::start_all_reduce_in_step(Addends values) {
  if (values.empty()) return start_all_reduce(values);
  queue_->use(values.bytes());
  auto transfer = step_ranks_->start(
      "all_reduce",
      fmt::format("all_reduce of {}{}", values.count(),
                  values.dtype() == DType::fp32 ? "" : " bf16"),
      {values.bytes()}, [values, one_shot = one_shot_.get()](Nccl& nccl, device::Stream& stream) {
        if (one_shot != nullptr && one_shot->takes(values))
          one_shot->all_reduce(values, stream);
        else
          nccl.all_reduce(values, stream);
      });
  if (transfer == nullptr) return start_all_reduce(values);
  count_all_reduce(values);
  return transfer;
}

void NcclCollectives::count_all_gather(const std::vector<std::span<std::byte>>& blocks) {
  const auto size = [](const std::span<std::byte>& block) { return std::ssize(block); };
  const GroupTree& tree = trees_.of(std::ranges::max(blocks, {}, size).size());
  if (tree.top() == 1) return queue_->count_to_all(blocks[queue_->rank()].size());
  count_steps(*queue_, all_gather_steps(tree, queue_->rank(), blocks));
}

void NcclCollectives::count_reduce_scatter(const Addends& partial,
                                           std::span<const int64_t> counts) {
  const int own = queue_->rank();
  const GroupTree& tree = trees_.of(std::ranges::max(counts) * size_of(partial.dtype()));
  if (tree.top() == 1) {
    for (int owner = 0; owner < queue_->size(); ++owner)
      queue_->count(static_cast<size_t>(counts[owner] * size_of(partial.dtype())), owner);
    return;
  }
  // Nobody looks into them.
  const Addends scratch(partial.data(), partial.dtype(), reduce_scatter_scratch(tree, own, counts));
  const Addends mine(partial.data(), partial.dtype(), counts[own]);
  count_steps(*queue_,
              reduce_scatter_steps(tree, own, partial, counts, mine, scratch, Sums::left_out));
}

/// A reduce-scatter over equal cuts, and an all-gather.
void NcclCollectives::count_all_reduce(const Addends& values) {
  const std::vector<int64_t> counts = equal_cuts(values.count(), queue_->size());
  count_reduce_scatter(values, counts);
  std::vector<std::span<std::byte>> blocks;
  for (int64_t begin = 0; const int64_t count : counts) {
    blocks.push_back(values.part(begin, count).bytes());
    begin += count;
  }
  count_all_gather(blocks);
}

}  // namespace pecia::comm
