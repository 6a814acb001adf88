#pragma once
/// How many threads a rank computes with, and where they stay.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/comm/communicator.hpp"

namespace pecia::runtime {

struct Threads {
  int count = 1;
  /// A hardware thread for each, by the system's number; empty: the system moves them.
  std::vector<int> cpus;
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
/// nothing.
Threads choose_threads(std::span<const RankCores> ranks, int rank, std::optional<double> quota,
                       const ThreadWords& words);

/// The same for this rank and machine. Collective over `world`.
Threads threads_of_rank(comm::Communicator& world);

}  // namespace pecia::runtime
