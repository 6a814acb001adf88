// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The ways on which keys and values reach ranks that share a KV head, where heads are exchanged
/// (model/attention/head_exchange.hpp). With more ranks than KV heads, N ranks and H heads, each
/// head is wanted by N/H of them. The ranks of a server that want the same head are a neighbourhood
/// of m ranks. A rank with b bytes of a head sends, for each neighbourhood on another server,
///
///                     across servers    inside the server, by the neighbourhood    exchanges
///     direct          m · b             0                                          1
///     relayed         b                 (m − 1) · b                                2
///
/// So relaying moves (m − 1) · b from the links between servers to those inside, and costs one more
/// exchange. It is no gain within a server: every rank receives the same bytes either way, and all
/// ranks together send the same. Hence neighbourhoods of the sender's own server get their keys
/// directly. Across servers b is the least, since the head has to come there.
///
/// The ranks of a neighbourhood take turns as relays: the i-th rank of a server sends to the i-th,
/// modulo m. With S servers of L ranks each and m | L, a relay passes on the keys of (S − 1) · L / m
/// ranks.
///
///     2 KV heads on 8 ranks, two servers of 4    wanted heads 0 0 0 0 1 1 1 1
///     for head 1 rank 0 sends to rank 4, 1 to 5, 2 to 6, 3 to 7; then rank 4 passes rank 0's keys
///     on to 5, 6 and 7. Across: 1 b for each rank in place of 4 b.
///
/// Source: the multi-step exchange of KV heads in Shift Parallelism. That neighbourhoods follow servers
/// is ours.

#include <span>
#include <vector>

#include "lib/ranks/parallel/heads.hpp"
#include "lib/ranks/parallel/link_costs.hpp"
#include "lib/ranks/parallel/sharding.hpp"

namespace pecia::parallel {

class KvRoutes {
 public:
  /// Everything goes directly.
  KvRoutes() = default;

  /// Relayed where the ranks of a neighbourhood are on another server than the sender.
  ///   wanted    [ranks] the KV heads of each rank: disjoint from, or equal to, those of another
  ///   servers   [ranks] labels; ranks with equal labels share a server
  static KvRoutes by_servers(std::span<const HeadRange> wanted, std::span<const int> servers);

  bool are_direct() const { return relays_.empty(); }

  /// The rank that sends the keys of `from` to `to`: `from` itself, or the relay that they go to.
  int last_hop(int from, int to) const {
    return relays_.empty() ? from : relays_[static_cast<size_t>(from) * num_ranks_ + to];
  }

  /// The ranks whose keys a relay passes on, ascending.
  std::vector<int> relayed_by(int relay) const;

 private:
  size_t num_ranks_ = 0;
  std::vector<int> relays_;  ///< [from, to] last_hop; empty: all are direct
};

/// Seconds that the routes save in one exchange, compared with direct ones: the rank that saves most
/// bytes across servers, less the relay that passes most on and the exchange more. Negative where
/// they cost time.
///   rows        [ranks] rows of each rank
///   row_bytes   keys and values of one row with the heads that one rank wants
double saved_s(const KvRoutes& routes, std::span<const RowRange> rows, double row_bytes,
               const LinkCosts& costs);

}  // namespace pecia::parallel
