// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How many threads a rank computes with, and where they stay.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/comm/communicator.hpp"

namespace pecia::resources {

struct Threads {
  int count = 1;
  /// A hardware thread for each, by the system's number; empty: the system moves them.
  std::vector<int> cpus;
  int64_t cores_of_job = 1;  ///< what all ranks are bound to, as cores_of_host counts
  int64_t cache_bytes = 0;   ///< these threads' share of the last-level caches of the rank's cores
};

/// What a rank may use: its cores by logical number, ascending, and one hardware thread of each.
struct RankCores {
  std::vector<int> cores, cpus;
};

/// The words of the environment that users of OpenMP know.
struct ThreadWords {
  std::optional<std::string> num_threads;  ///< OMP_NUM_THREADS
  std::optional<std::string> proc_bind;    ///< OMP_PROC_BIND
};

/// Threads of rank `rank` of a host, of which `ranks` has all: OMP_NUM_THREADS if set, else the
/// cores it is bound to, divided among the ranks when they are bound to the same, and no more than
/// the CPUs of `quota` allow the host's ranks. With OMP_PROC_BIND true, close, spread, master or
/// primary each stays on a core of its own, where there are as many. InputError for words that mean
/// nothing. What concerns the job and the caches is left out.
Threads choose_threads(std::span<const RankCores> ranks, int rank, std::optional<double> quota,
                       const ThreadWords& words);

/// Cores that the ranks of a host are bound to together, no more than their quota.
int64_t cores_of_host(std::span<const RankCores> ranks, std::optional<double> quota);

/// The threads of this rank and machine. Collective over `world`.
Threads threads_of_rank(comm::Communicator& world);

}  // namespace pecia::resources
