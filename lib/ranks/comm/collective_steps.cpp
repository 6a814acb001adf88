// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/collective_steps.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <memory>

#include "lib/base/core/error.hpp"

namespace pecia::comm {
namespace {

constexpr int64_t tile_floats = 1024;

void widen(const Addends& from, float* to) {
  if (from.dtype() == DType::fp32)
    std::copy_n(from.as<float>(), from.count(), to);
  else
    std::transform(from.as<uint16_t>(), from.as<uint16_t>() + from.count(), to, bf16_to_float);
}

void round_to(const float* from, const Addends& to) {
  if (to.dtype() == DType::fp32)
    std::copy_n(from, to.count(), to.as<float>());
  else
    std::transform(from, from + to.count(), to.as<uint16_t>(), float_to_bf16);
}

/// Writes elements [begin, begin + count) of the tree's sum.
void sum_tile(std::span<const Addends> parts, int64_t begin, int64_t count, float* sum) {
  if (parts.size() == 1) return widen(parts.front().part(begin, count), sum);
  const size_t left = std::bit_floor(parts.size() - 1);
  sum_tile(parts.first(left), begin, count, sum);
  std::array<float, tile_floats> right;
  sum_tile(parts.subspan(left), begin, count, right.data());
  for (int64_t i = 0; i < count; ++i) sum[i] += right[i];
}

/// `out` may be one of the parts.
void sum_as_tree(std::span<const Addends> parts, const Addends& out) {
  std::array<float, tile_floats> sum;
  for (int64_t begin = 0; begin < out.count(); begin += tile_floats) {
    const int64_t count = std::min(tile_floats, out.count() - begin);
    sum_tile(parts, begin, count, sum.data());
    round_to(sum.data(), out.part(begin, count));
  }
}

class AllGather {
 public:
  AllGather(const GroupTree& tree, int rank, std::vector<std::span<std::byte>> blocks)
      : tree_(tree), rank_(rank), blocks_(std::move(blocks)) {
    for (int owner = 0; owner < tree.num_ranks(); ++owner) ways_.push_back(tree.way(owner, rank));
  }

  /// Sends on what the exchange before has brought; at first the own block.
  Exchange exchange(int number) const {
    const int num_ranks = tree_.num_ranks();
    Exchange exchange;
    for (int owner = 0; owner < num_ranks; ++owner) {
      if (ways_[owner].exchange == number)
        exchange.receives.push_back({blocks_[owner], ways_[owner].from});
      if (ways_[owner].exchange != number - 1) continue;
      std::vector<int> to;
      for (int level = 1; level <= ways_[owner].level; ++level)
        for (const int other : tree_.delegates(level, rank_))
          if (other != rank_) to.push_back(other);
      // From the next rank on: else all ranks would send to rank 0 first.
      std::ranges::sort(to, {}, [&](int r) { return (r - rank_ + num_ranks) % num_ranks; });
      for (const int other : to) exchange.sends.push_back({blocks_[owner], other});
    }
    return exchange;
  }

 private:
  const GroupTree& tree_;
  int rank_;
  std::vector<std::span<std::byte>> blocks_;
  std::vector<GroupTree::Way> ways_;  ///< of the blocks to this rank, by owner
};

class ReduceScatter {
 public:
  ReduceScatter(const GroupTree& tree, int rank, Addends partial, std::span<const int64_t> counts,
                Addends mine, Addends scratch, Sums sums)
      : tree_(tree), rank_(rank), mine_(mine), scratch_(scratch), sums_kind_(sums) {
    int64_t begin = 0;
    for (int owner = 0; owner < tree.num_ranks(); ++owner) {
      blocks_.push_back({tree.way(owner, rank), partial.part(begin, counts[owner]), {}});
      begin += counts[owner];
    }
  }

  /// Sends the sums of those groups of this level in which this rank acts for the owner, and that
  /// are part of a larger group in which it does not; and receives those of the larger groups.
  Exchange exchange(int level) {
    Exchange exchange;
    const std::vector<int> parts = tree_.delegates(level + 1, rank_);
    for (Block& block : blocks_) {
      if (block.way.level < level) continue;
      add_up(block);
      if (block.way.level == level) {
        exchange.sends.push_back({block.sum.bytes(), block.way.from});
        continue;
      }
      for (const int from : parts)
        block.parts.push_back(from == rank_ ? block.sum
                                            : receive(exchange, block.sum.count(), from));
    }
    return exchange;
  }

  Exchange total() {
    Block& own = blocks_[rank_];
    if (sums_kind_ == Sums::computed) sum_as_tree(own.parts, mine_);
    return {};
  }

 private:
  /// What this rank does for the owner of a block.
  struct Block {
    GroupTree::Way way;
    Addends sum;                 ///< of the largest group so far: at first the own partial
    std::vector<Addends> parts;  ///< of the next larger one, in the order of its groups
  };

  /// The sum overwrites a part that has arrived.
  void add_up(Block& block) const {
    if (block.parts.size() > 1) {
      const Addends& place = block.parts[block.parts.front().data() == block.sum.data() ? 1 : 0];
      if (sums_kind_ == Sums::computed) sum_as_tree(block.parts, place);
      block.sum = place;
    }
    block.parts.clear();
  }

  Addends receive(Exchange& exchange, int64_t count, int from) {
    PECIA_CHECK(count <= scratch_.count(), "{} numbers arrive, {} are left for them", count,
                scratch_.count());
    const Addends place = scratch_.part(0, count);
    scratch_ = scratch_.part(count, scratch_.count() - count);
    exchange.receives.push_back({place.bytes(), from});
    return place;
  }

  const GroupTree& tree_;
  int rank_;
  std::vector<Block> blocks_;  ///< by owner
  Addends mine_;
  Addends scratch_;  ///< the part that is still free
  Sums sums_kind_;
};

}  // namespace

std::vector<int64_t> equal_cuts(int64_t total, int parts) {
  std::vector<int64_t> counts(parts, total / parts);
  for (int part = 0; part < total % parts; ++part) ++counts[part];
  return counts;
}

int64_t reduce_scatter_scratch(const GroupTree& tree, int rank, std::span<const int64_t> counts) {
  int64_t numbers = 0;
  for (int owner = 0; owner < tree.num_ranks(); ++owner)
    for (int level = tree.way(owner, rank).level; level > 0; --level)
      numbers += counts[owner] * (std::ssize(tree.delegates(level, rank)) - 1);
  return numbers;
}

std::vector<Step> all_gather_steps(const GroupTree& tree, int rank,
                                   std::vector<std::span<std::byte>> blocks) {
  const auto plan = std::make_shared<const AllGather>(tree, rank, std::move(blocks));
  std::vector<Step> steps;
  for (int number = 0; number < tree.top(); ++number)
    steps.push_back([plan, number] { return plan->exchange(number); });
  return steps;
}

std::vector<Step> reduce_scatter_steps(const GroupTree& tree, int rank, Addends partial,
                                       std::span<const int64_t> counts, Addends mine,
                                       Addends scratch, Sums sums) {
  const auto plan =
      std::make_shared<ReduceScatter>(tree, rank, partial, counts, mine, scratch, sums);
  std::vector<Step> steps;
  for (int level = 0; level < tree.top(); ++level)
    steps.push_back([plan, level] { return plan->exchange(level); });
  steps.push_back([plan] { return plan->total(); });
  return steps;
}

}  // namespace pecia::comm
