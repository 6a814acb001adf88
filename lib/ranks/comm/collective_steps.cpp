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
  ReduceScatter(const ServerMap& servers, int rank, Addends partial,
                std::span<const int64_t> counts, Addends mine, Addends scratch, Sums sums)
      : servers_(servers),
        rank_(rank),
        server_(servers.server(rank)),
        mine_(mine),
        scratch_(scratch),
        sums_kind_(sums) {
    for (int64_t begin = 0; const int64_t count : counts) {
      blocks_.push_back(partial.part(begin, count));
      begin += count;
    }
  }

  Exchange inside() {
    Exchange exchange;
    for (int owner = 0; owner < servers_.num_ranks(); ++owner) {
      const int delegate = servers_.delegate(server_, owner);
      if (delegate != rank_) {
        exchange.sends.push_back({blocks_[owner].bytes(), delegate});
        continue;
      }
      ServerSum& sum = server_sums_.emplace_back();
      sum.owner = owner;
      for (const int peer : servers_.ranks(server_)) {
        if (peer == rank_) {
          sum.parts.push_back(blocks_[owner]);
          continue;
        }
        sum.place = receive(exchange, blocks_[owner].count(), peer);
        sum.parts.push_back(sum.place);
      }
    }
    return exchange;
  }

  Exchange across() {
    Exchange exchange;
    Addends own_sum;
    for (const ServerSum& sum : server_sums_) {
      Addends ready = blocks_[sum.owner];
      if (sum.parts.size() > 1) {
        add_up(sum.parts, sum.place);
        ready = sum.place;
      }
      if (sum.owner == rank_)
        own_sum = ready;
      else if (servers_.server(sum.owner) != server_)
        exchange.sends.push_back({ready.bytes(), sum.owner});
    }
    for (int server = 0; server < servers_.num_servers(); ++server)
      sums_.push_back(server == server_
                          ? own_sum
                          : receive(exchange, mine_.count(), servers_.delegate(server, rank_)));
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
    std::vector<Addends> parts;
    Addends place;
  };

  void add_up(std::span<const Addends> parts, const Addends& out) const {
    if (sums_kind_ == Sums::computed) sum_as_tree(parts, out);
  }

  Addends receive(Exchange& exchange, int64_t count, int from) {
    PECIA_CHECK(count <= scratch_.count(), "{} numbers arrive, {} are left for them", count,
                scratch_.count());
    const Addends place = scratch_.part(0, count);
    scratch_ = scratch_.part(count, scratch_.count() - count);
    exchange.receives.push_back({place.bytes(), from});
    return place;
  }

  const ServerMap& servers_;
  int rank_, server_;
  std::vector<Addends> blocks_;  ///< blocks of this rank's partial, by owner
  Addends mine_;
  Addends scratch_;                     ///< the part that is still free
  std::vector<ServerSum> server_sums_;  ///< one per block that this rank is the delegate of
  std::vector<Addends> sums_;           ///< sums of this rank's block, by server
  Sums sums_kind_;
};

}  // namespace

std::vector<int64_t> equal_cuts(int64_t total, int parts) {
  std::vector<int64_t> counts(parts, total / parts);
  for (int part = 0; part < total % parts; ++part) ++counts[part];
  return counts;
}

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

std::vector<Step> reduce_scatter_steps(const ServerMap& servers, int rank, Addends partial,
                                       std::span<const int64_t> counts, Addends mine,
                                       Addends scratch, Sums sums) {
  const auto plan =
      std::make_shared<ReduceScatter>(servers, rank, partial, counts, mine, scratch, sums);
  return {[plan] { return plan->inside(); }, [plan] { return plan->across(); },
          [plan] { return plan->total(); }};
}

}  // namespace pecia::comm
