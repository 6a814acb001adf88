// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How many threads a rank computes with, and which CPUs they stay on.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/ranks/comm/communicator.hpp"

namespace pecia::resources {

struct Threads {
  int count = 1;
  /// A hardware thread for each thread, by the system's number. Empty: the system moves threads.
  std::vector<int> cpus;
  int64_t cores_of_job = 1;  ///< cores that all ranks are bound to, as cores_of_host counts
  int64_t cache_bytes = 0;   ///< these threads' share of the cores' last-level caches
};

/// What a rank may use: the logical numbers of its cores, ascending, and one hardware thread of
/// each.
struct RankCores {
  std::vector<int> cores, cpus;
};

/// Variables of the environment that control OpenMP.
struct ThreadWords {
  std::optional<std::string> num_threads;  ///< OMP_NUM_THREADS
  std::optional<std::string> proc_bind;    ///< OMP_PROC_BIND
};

/// The threads of rank `rank` among `ranks`, all ranks of its host. Their number is OMP_NUM_THREADS
/// if set. Otherwise it is the number of cores that the rank is bound to, divided among ranks bound
/// to the same cores, and limited so that the host's ranks stay within the CPUs of `quota`. With
/// OMP_PROC_BIND true, close, spread, master or primary, each thread stays on a core of its own,
/// where there are enough. Throws InputError for words without a meaning. cores_of_job and
/// cache_bytes are not set.
Threads choose_threads(std::span<const RankCores> ranks, int rank, std::optional<double> quota,
                       const ThreadWords& words);

/// Cores that the ranks of a host are bound to together, limited by their quota.
int64_t cores_of_host(std::span<const RankCores> ranks, std::optional<double> quota);

/// Finds the threads of this rank on this machine. Collective over `world`.
Threads threads_of_rank(comm::Communicator& world);

}  // namespace pecia::resources
