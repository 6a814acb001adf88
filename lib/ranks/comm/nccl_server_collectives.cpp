// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/nccl_server_collectives.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lib/base/core/error.hpp"

namespace pecia::comm {

NcclServerCollectives::NcclServerCollectives(std::shared_ptr<NcclQueue> queue,
                                             std::shared_ptr<NcclStepRanks> step_ranks,
                                             const std::vector<int>& server_of_rank,
                                             int64_t least_block)
    : NcclCollectives(std::move(queue), std::move(step_ranks), server_of_rank),
      least_block_(least_block),
      width_(servers_.num_ranks() / servers_.num_servers()),
      index_(queue_->rank() % width_),
      scratch_(queue_->device(), device::Memory::device) {
  PECIA_CHECK(servers_.is_regular() && width_ > 1, "{} ranks on {} servers go by no rails",
              servers_.num_ranks(), servers_.num_servers());
}

NcclServerCollectives::~NcclServerCollectives() {
  for (const auto* part : {&inside_, &rail_})
    if (*part) queue_->give_back(**part);
}

void NcclServerCollectives::make_groups() {
  if (inside_) return;
  inside_ = queue_->split_part(servers_.server(queue_->rank()), queue_->rank());
  rail_ = queue_->split_part(index_, queue_->rank());
}

std::unique_ptr<Transfer> NcclServerCollectives::start_all_gather(
    std::vector<std::span<std::byte>> blocks) {
  const auto size = [](const std::span<std::byte>& block) { return std::ssize(block); };
  if (std::ranges::max(blocks, {}, size).size() < static_cast<size_t>(least_block_))
    return NcclCollectives::start_all_gather(std::move(blocks));
  make_groups();
  count_all_gather(blocks);
  for (const auto& block : blocks) {
    queue_->use(block);
    inside_->registered.use(block);
  }
  return queue_->start_groups("all_gather", "all ranks", [&](device::Stream& stream) {
    const std::span<std::byte> mine = blocks[queue_->rank()];
    Nccl& all = queue_->nccl();
    all.start_group();
    for (int rank = index_; rank < queue_->size(); rank += width_) {
      if (rank == queue_->rank()) continue;
      if (!mine.empty()) all.send(mine, rank, stream);
      if (!blocks[rank].empty()) all.receive(blocks[rank], rank, stream);
    }
    all.end_group();
    inside_->nccl->start_group();
    for (int first = 0; first < queue_->size(); first += width_)
      call_all_gather(*inside_->nccl, std::span(blocks).subspan(first, width_), stream);
    inside_->nccl->end_group();
  });
}

std::unique_ptr<Transfer> NcclServerCollectives::start_reduce_scatter(
    Addends partial, std::span<const int64_t> counts, Addends mine) {
  if (std::ranges::max(counts) * size_of(partial.dtype()) < least_block_)
    return NcclCollectives::start_reduce_scatter(partial, counts, mine);
  make_groups();
  count_reduce_scatter(partial, counts);
  std::vector<int64_t> of_rail;  // numbers of the rail's blocks
  for (int rank = index_; rank < queue_->size(); rank += width_) of_rail.push_back(counts[rank]);
  const int64_t sums = std::accumulate(of_rail.begin(), of_rail.end(), int64_t{0});
  scratch_.reserve(sums * size_of(partial.dtype()));
  const Addends scratch(scratch_.data(), partial.dtype(), sums);
  for (const Addends& used : {partial, scratch}) inside_->registered.use(used.bytes());
  for (const Addends& used : {scratch, mine}) rail_->registered.use(used.bytes());
  return queue_->start_groups("reduce_scatter", "all ranks", [&](device::Stream& stream) {
    inside_->nccl->start_group();
    int64_t begin = 0, begin_of_sums = 0;
    for (size_t server = 0; server < of_rail.size(); ++server) {
      const auto of_server = counts.subspan(server * width_, width_);
      const int64_t count = std::accumulate(of_server.begin(), of_server.end(), int64_t{0});
      call_reduce_scatter(*inside_->nccl, index_, partial.part(begin, count), of_server,
                          scratch.part(begin_of_sums, of_rail[server]), stream);
      begin += count, begin_of_sums += of_rail[server];
    }
    inside_->nccl->end_group();
    rail_->nccl->start_group();
    call_reduce_scatter(*rail_->nccl, servers_.server(queue_->rank()), scratch, of_rail, mine,
                        stream);
    rail_->nccl->end_group();
  });
}

}  // namespace pecia::comm
