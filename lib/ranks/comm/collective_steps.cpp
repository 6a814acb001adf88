// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/comm/collective_steps.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <memory>

#include "lib/base/core/error.hpp"

namespace pecia::comm {
namespace {

constexpr size_t tile_floats = 1024;

/// Writes elements [begin, begin + count) of the tree's sum.
void sum_tile(std::span<const float* const> parts, size_t begin, size_t count, float* sum) {
  if (parts.size() == 1) {
    std::copy_n(parts.front() + begin, count, sum);
    return;
  }
  const size_t left = std::bit_floor(parts.size() - 1);
  sum_tile(parts.first(left), begin, count, sum);
  std::array<float, tile_floats> right;
  sum_tile(parts.subspan(left), begin, count, right.data());
  for (size_t i = 0; i < count; ++i) sum[i] += right[i];
}

/// `out` may be one of the parts.
void sum_as_tree(std::span<const float* const> parts, std::span<float> out) {
  std::array<float, tile_floats> sum;
  for (size_t begin = 0; begin < out.size(); begin += tile_floats) {
    const size_t count = std::min(tile_floats, out.size() - begin);
    sum_tile(parts, begin, count, sum.data());
    std::copy_n(sum.data(), count, out.data() + begin);
  }
}

class AllGather {
 public:
  AllGather(const ServerMap& servers, int rank, std::vector<std::span<std::byte>> blocks)
      : servers_(servers), rank_(rank), server_(servers.server(rank)), blocks_(std::move(blocks)) {}

  Exchange inside_and_across() const {
    const int num_ranks = servers_.num_ranks();
    Exchange exchange;
    for (int step = 1; step < num_ranks; ++step) {  // else all ranks would send to rank 0 first
      const int to = (rank_ + step) % num_ranks, from = (rank_ - step + num_ranks) % num_ranks;
      if (goes_at_once(rank_, to)) exchange.sends.push_back({blocks_[rank_], to});
      if (goes_at_once(from, rank_)) exchange.receives.push_back({blocks_[from], from});
    }
    return exchange;
  }

  Exchange pass_on() const {
    Exchange exchange;
    for (int from = 0; from < servers_.num_ranks(); ++from) {
      if (servers_.server(from) == server_) continue;
      const int delegate = servers_.delegate(server_, from);
      if (delegate != rank_) {
        exchange.receives.push_back({blocks_[from], delegate});
        continue;
      }
      for (const int peer : servers_.ranks(server_))
        if (peer != rank_) exchange.sends.push_back({blocks_[from], peer});
    }
    return exchange;
  }

 private:
  bool goes_at_once(int from, int to) const {
    const int server = servers_.server(to);
    return servers_.server(from) == server || servers_.delegate(server, from) == to;
  }

  const ServerMap& servers_;
  int rank_, server_;
  std::vector<std::span<std::byte>> blocks_;
};

class ReduceScatter {
 public:
  ReduceScatter(const ServerMap& servers, int rank, std::span<const float> partial,
                std::span<const int64_t> counts, std::span<float> mine, std::span<float> scratch,
                Sums sums)
      : servers_(servers),
        rank_(rank),
        server_(servers.server(rank)),
        mine_(mine),
        scratch_(scratch),
        sums_kind_(sums) {
    for (const int64_t count : counts) {
      blocks_.push_back(partial.first(count));
      partial = partial.subspan(count);
    }
  }

  Exchange inside() {
    Exchange exchange;
    for (int owner = 0; owner < servers_.num_ranks(); ++owner) {
      const int delegate = servers_.delegate(server_, owner);
      if (delegate != rank_) {
        exchange.sends.push_back({std::as_bytes(blocks_[owner]), delegate});
        continue;
      }
      ServerSum& sum = server_sums_.emplace_back();
      sum.owner = owner;
      for (const int peer : servers_.ranks(server_)) {
        if (peer == rank_) {
          sum.parts.push_back(blocks_[owner].data());
          continue;
        }
        const std::span<float> arriving = receive(exchange, blocks_[owner].size(), peer);
        sum.parts.push_back(arriving.data());
        sum.place = arriving;
      }
    }
    return exchange;
  }

  Exchange across() {
    Exchange exchange;
    const float* own_sum = nullptr;
    for (const ServerSum& sum : server_sums_) {
      std::span<const float> ready = blocks_[sum.owner];
      if (sum.parts.size() > 1) {
        add_up(sum.parts, sum.place);
        ready = sum.place;
      }
      if (sum.owner == rank_)
        own_sum = ready.data();
      else if (servers_.server(sum.owner) != server_)
        exchange.sends.push_back({std::as_bytes(ready), sum.owner});
    }
    for (int server = 0; server < servers_.num_servers(); ++server)
      sums_.push_back(
          server == server_
              ? own_sum
              : receive(exchange, mine_.size(), servers_.delegate(server, rank_)).data());
    return exchange;
  }

  Exchange total() const {
    add_up(sums_, mine_);
    return {};
  }

 private:
  /// For the block of `owner`: the partials of this server's ranks, in their order, and the place
  /// of their sum, which overwrites a partial that has arrived.
  struct ServerSum {
    int owner = 0;
    std::vector<const float*> parts;
    std::span<float> place;
  };

  void add_up(std::span<const float* const> parts, std::span<float> out) const {
    if (sums_kind_ == Sums::computed) sum_as_tree(parts, out);
  }

  std::span<float> receive(Exchange& exchange, size_t count, int from) {
    PECIA_CHECK(count <= scratch_.size(), "{} floats arrive, {} are left for them", count,
                scratch_.size());
    const std::span<float> place = scratch_.first(count);
    scratch_ = scratch_.subspan(count);
    exchange.receives.push_back({std::as_writable_bytes(place), from});
    return place;
  }

  const ServerMap& servers_;
  int rank_, server_;
  std::vector<std::span<const float>> blocks_;  ///< blocks of this rank's partial, by owner
  std::span<float> mine_;
  std::span<float> scratch_;            ///< the part that is still free
  std::vector<ServerSum> server_sums_;  ///< one per block that this rank is the delegate of
  std::vector<const float*> sums_;      ///< sums of this rank's block, by server
  Sums sums_kind_;
};

}  // namespace

int64_t reduce_scatter_scratch(const ServerMap& servers, int rank,
                               std::span<const int64_t> counts) {
  const int server = servers.server(rank);
  int64_t delegated = 0;
  for (int owner = 0; owner < servers.num_ranks(); ++owner)
    if (servers.delegate(server, owner) == rank) delegated += counts[owner];
  const auto peers = static_cast<int64_t>(servers.ranks(server).size()) - 1;
  return delegated * peers + counts[rank] * (servers.num_servers() - 1);
}

std::vector<Step> all_gather_steps(const ServerMap& servers, int rank,
                                   std::vector<std::span<std::byte>> blocks) {
  const auto plan = std::make_shared<const AllGather>(servers, rank, std::move(blocks));
  return {[plan] { return plan->inside_and_across(); }, [plan] { return plan->pass_on(); }};
}

std::vector<Step> reduce_scatter_steps(const ServerMap& servers, int rank,
                                       std::span<const float> partial,
                                       std::span<const int64_t> counts, std::span<float> mine,
                                       std::span<float> scratch, Sums sums) {
  const auto plan =
      std::make_shared<ReduceScatter>(servers, rank, partial, counts, mine, scratch, sums);
  return {[plan] { return plan->inside(); }, [plan] { return plan->across(); },
          [plan] { return plan->total(); }};
}

}  // namespace pecia::comm
