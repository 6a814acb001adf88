// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Which ranks of a group share a server, and which rank acts as its delegate. Pure values.

#include <cstdint>
#include <span>
#include <vector>

#include "lib/ranks/comm/place.hpp"

namespace pecia::comm {

/// Servers are numbered by their lowest rank. The ranks of a server are in rank order.
///
///     labels 7 9 9 9 4     server of rank  0 1 1 1 2     index on its server  0 0 1 2 0
///                          delegates of server 1 for ranks 0 … 4:  1 1 2 3 1
class ServerMap {
 public:
  /// Ranks with equal labels share a server.
  explicit ServerMap(std::span<const int> label_of_rank);

  int num_ranks() const { return static_cast<int>(server_of_rank_.size()); }
  int num_servers() const { return static_cast<int>(ranks_.size()); }
  int server(int rank) const { return server_of_rank_[rank]; }
  const std::vector<int>& ranks(int server) const { return ranks_[server]; }

  /// Whether server s has the ranks s·L, …, s·L + L − 1, each the same number L.
  bool is_regular() const;

  /// The rank of `server` that sends and receives on behalf of `rank` there. On its own server this
  /// is `rank` itself; elsewhere the server's ranks share the work.
  int delegate(int server, int rank) const;

 private:
  std::vector<int> server_of_rank_;
  std::vector<int> index_on_server_;
  std::vector<std::vector<int>> ranks_;
};

/// The labels to use where a sum has to have the bits of one server (sums_as_flat, of servers and of
/// racks). Those that would change them are left out.
RankLabels labels_as_flat(RankLabels labels);

/// Whether summing over each server's ranks and then over the servers makes the same additions as
/// summing over all ranks in pairs of neighbours (Collectives). This holds when each server has the
/// same power of two of consecutive ranks; the last server may have fewer.
///
///     0 0 0 0 1 1     yes: (0 1)(2 3) and (4 5) are nodes of the tree over six ranks
///     0 0 0 1 1 1     no         0 1 0 1     no
bool sums_as_flat(std::span<const int> label_of_rank);

}  // namespace pecia::comm
