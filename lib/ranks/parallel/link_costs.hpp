// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What messages cost between servers and inside them, and which gathers and scatters of GPUs go by
/// servers therefore.
///
/// NCCL's all-gathers and reduce-scatters over servers with several GPUs are rings, one for each
/// network adapter, unless the network itself adds (NCCL, src/graph/tuning.cc). Take R racks of S/R
/// servers of L ranks and a block of b bytes of each rank. Each rank's share of the adapters then
/// sends, and each rank sends inside its server,
///
///                  between racks    between servers        inside         at the same time
///     ring         b · (S − 1/L)    that                   b · (SL − 1)   yes: chunks follow each other
///     by servers   b · (S − S/R)    b · (S/R − 1)          b · S (L − 1)  no: one after the other
///     by racks     b · (R − 1)      b · R (S/R − 1)        b · S (L − 1)  no, in one exchange more
///
/// A block that has come to a server does not leave it again on the way to its own one, so by servers
/// b · (1 − 1/L) bytes less cross than in a ring. That pays where links between servers are far
/// slower. By racks b · (R − 1) (S/R − 1) bytes go between servers of a rack in place of racks. With
/// the figures of the presets, one rack, S 2 and L 8, in nanoseconds for each byte of a block:
///
///     50 GB/s for each GPU, 450 inside (h100-nvswitch)     ring 0.038    by servers 0.051
///     50 GB/s for all 8, 300 inside (a100-p4d)             ring 0.30     by servers 0.21
///
/// Source: CSPS, hierarchical SP-TP. What else stays NCCL's own, and why:
///
///     all-reduce      NCCL's trees add inside a server first. With two servers their sums cross once
///                     each way, which is the least.
///     all-to-all      each byte crosses once either way. By servers a rank would send S − 1 messages
///                     in place of (S − 1) · L. But it would pack, copy and wait once more, which takes
///                     longer than some messages more in a group of calls.
///
/// None of this has been measured between servers with GPUs.

#include <cstdint>
#include <limits>
#include <span>

namespace pecia::parallel {

/// Of messages on a rank while all ranks send.
struct LinkCosts {
  double across_s_per_byte = 0, inside_s_per_byte = 0;  ///< to another server, and inside one
  double exchange_s = 0;                                ///< of one more exchange of a few bytes
  /// To another rack; 0: unknown, or the ranks have none where racks could make a difference.
  double racks_s_per_byte = 0;

  bool operator==(const LinkCosts&) const = default;
};

/// A group of ranks.
struct GroupShape {
  int racks = 1, servers = 1, ranks = 1;  ///< in all, the same number in each

  /// Whether the racks have several servers each.
  bool has_racks() const { return racks > 1 && servers > racks; }
};

/// Of a group with these labels by rank. Servers that differ in their numbers of ranks count as one, and
/// so do racks.
GroupShape shape_of(std::span<const int> servers, std::span<const int> racks);

inline constexpr int64_t no_block = std::numeric_limits<int64_t>::max();

/// The bytes of a block from which on gathers and scatters are faster by racks than by servers; no_block
/// if none is, and if the costs are zeros.
int64_t least_block_by_racks(const LinkCosts& costs, const GroupShape& shape);

/// The bytes of a block from which on gathers and scatters are faster by servers, or by racks, than in a
/// ring.
int64_t least_block_by_servers(const LinkCosts& costs, const GroupShape& shape);

/// The bytes up to which a sum of ranks on one server takes less time in one shot (comm/one_shot.hpp)
/// than in a ring; 0: none does. With s seconds for each of a ring's 2 (N − 1) hops, t for one shot and
/// c for a byte inside the server (450 GB/s, an H100's, where the costs are zeros):
///
///     t + (N − 1) · B · c < 2 (N − 1) · s + 2 (N − 1) / N · B · c
///
/// Two ranks send as much either way. The result is at most what vLLM sums in one shot, 512 KiB of up to
/// four ranks and 256 KiB of more (csrc/custom_all_reduce.cuh). s and t are 2 and 3 µs: not measured.
int64_t most_one_shot_bytes(const LinkCosts& costs, int ranks);

}  // namespace pecia::parallel
