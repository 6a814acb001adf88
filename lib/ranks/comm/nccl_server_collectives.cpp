// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/nccl_server_collectives.hpp"

#include <algorithm>
#include <numeric>
#include <ranges>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/ranks/comm/server_map.hpp"

namespace pecia::comm {

NcclServerCollectives::NcclServerCollectives(std::shared_ptr<NcclQueue> queue,
                                             std::shared_ptr<NcclStepRanks> step_ranks,
                                             const RankLabels& labels, int64_t least_block)
    : NcclCollectives(std::move(queue), std::move(step_ranks), labels),
      least_block_(least_block),
      least_block_by_racks_(labels.least_block_by_racks),
      scratch_(queue_->device(), device::Memory::device) {
  const ServerMap servers(labels.servers), racks(labels.racks);
  width_ = servers.num_ranks() / servers.num_servers();
  PECIA_CHECK(servers.is_regular() && width_ > 1, "{} ranks on {} servers go by no rails",
              servers.num_ranks(), servers.num_servers());
  inside_ = rail(1, width_);
  by_servers_.push_back(rail(width_, servers.num_servers()));
  if (racks.num_servers() < 2 || !racks.is_regular()) return;
  const int of_rack = racks.num_ranks() / racks.num_servers();
  if (of_rack <= width_ || of_rack % width_ != 0) return;
  by_racks_.push_back(rail(of_rack, racks.num_servers()));
  by_racks_.push_back(rail(width_, of_rack / width_));
}

NcclServerCollectives::~NcclServerCollectives() {
  if (inside_.ranks) queue_->give_back(*inside_.ranks);
  for (const Rails* rails : {&by_servers_, &by_racks_})
    for (const Rail& rail : *rails)
      if (rail.ranks) queue_->give_back(*rail.ranks);
}

void NcclServerCollectives::make_group(Rail& rail) {
  const int rank = queue_->rank();
  if (!rail.ranks) rail.ranks = queue_->split_part(rank - rail.place * rail.stride, rank);
}

std::unique_ptr<Transfer> NcclServerCollectives::start_all_gather(
    std::vector<std::span<std::byte>> blocks) {
  const auto size = [](const std::span<std::byte>& block) { return std::ssize(block); };
  const auto largest = std::ranges::max(blocks, {}, size).size();
  if (largest < static_cast<size_t>(least_block_))
    return NcclCollectives::start_all_gather(std::move(blocks));
  make_group(inside_);
  count_all_gather(blocks);
  for (const auto& block : blocks) {
    queue_->use(block);
    inside_.ranks->registered.use(block);
  }
  const Rails& rails = rails_of(static_cast<int64_t>(largest));
  return queue_->start_groups("all_gather", "all ranks", [&](device::Stream& stream) {
    Nccl& all = queue_->nccl();
    std::vector<int> held{queue_->rank()};  // whose blocks are here
    for (const Rail& rail : rails) {
      std::vector<int> coming;
      all.start_group();
      for (int place = 0; place < rail.count; ++place) {
        const int away = (place - rail.place) * rail.stride;
        for (const int rank : held) {
          coming.push_back(rank + away);
          if (away == 0) continue;
          if (!blocks[rank].empty()) all.send(blocks[rank], queue_->rank() + away, stream);
          if (const auto& block = blocks[rank + away]; !block.empty())
            all.receive(block, queue_->rank() + away, stream);
        }
      }
      all.end_group();
      held = std::move(coming);
    }
    inside_.ranks->nccl->start_group();
    for (int first = 0; first < queue_->size(); first += width_)
      call_all_gather(*inside_.ranks->nccl, std::span(blocks).subspan(first, width_), stream);
    inside_.ranks->nccl->end_group();
  });
}

std::unique_ptr<Transfer> NcclServerCollectives::start_reduce_scatter(
    Addends partial, std::span<const int64_t> counts, Addends mine) {
  const int64_t largest = std::ranges::max(counts) * size_of(partial.dtype());
  if (largest < least_block_) return NcclCollectives::start_reduce_scatter(partial, counts, mine);
  Rails& rails = rails_of(largest);
  make_group(inside_);
  for (Rail& rail : rails) make_group(rail);
  count_reduce_scatter(partial, counts);
  // The sums that are left here: of blocks of ranks in this one's place on every server, then on
  // those servers alone that are in its place of every rack.
  std::vector<std::vector<int64_t>> left(1);
  for (int rank = inside_.place; rank < queue_->size(); rank += width_)
    left.back().push_back(counts[rank]);
  for (size_t i = rails.size(); i-- > 1;) {
    std::vector<int64_t> next;
    for (size_t at = rails[i].place; at < left.back().size(); at += rails[i].count)
      next.push_back(left.back()[at]);
    left.push_back(std::move(next));
  }
  std::vector<Addends> sums;
  int64_t numbers = 0;
  const auto sum_of = [](std::span<const int64_t> all) {
    return std::accumulate(all.begin(), all.end(), int64_t{0});
  };
  for (const auto& some : left) numbers += sum_of(some);
  scratch_.reserve(numbers * size_of(partial.dtype()));
  const Addends scratch(scratch_.data(), partial.dtype(), numbers);
  for (int64_t begin = 0; const auto& some : left) {
    sums.push_back(scratch.part(begin, sum_of(some)));
    begin += sum_of(some);
  }
  for (const Addends& used : {partial, scratch}) inside_.ranks->registered.use(used.bytes());
  for (const Rail& rail : rails)
    for (const Addends& used : {scratch, mine}) rail.ranks->registered.use(used.bytes());

  return queue_->start_groups("reduce_scatter", "all ranks", [&](device::Stream& stream) {
    // One scatter over the ranks of `rail` for each of its rows of blocks.
    const auto scatter = [&](const Rail& rail, const Addends& from, std::span<const int64_t> blocks,
                             const Addends& to) {
      rail.ranks->nccl->start_group();
      int64_t begin = 0, begin_of_sums = 0;
      for (size_t first = 0; first < blocks.size(); first += rail.count) {
        const auto row = blocks.subspan(first, rail.count);
        call_reduce_scatter(*rail.ranks->nccl, rail.place, from.part(begin, sum_of(row)), row,
                            to.part(begin_of_sums, row[rail.place]), stream);
        begin += sum_of(row), begin_of_sums += row[rail.place];
      }
      rail.ranks->nccl->end_group();
    };
    scatter(inside_, partial, counts, sums.front());
    for (size_t i = rails.size(); i-- > 0;) {
      const size_t step = rails.size() - 1 - i;
      scatter(rails[i], sums[step], left[step], i == 0 ? mine : sums[step + 1]);
    }
  });
}

}  // namespace pecia::comm
