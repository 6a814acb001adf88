#pragma once
/// Doctor's judgements: one pure function per fact, each with the remedy when the fact will hurt.

#include <optional>
#include <string>
#include <vector>

#include "lib/comm/launch.hpp"
#include "lib/comm/machine.hpp"

namespace pecia::app {

struct Finding {
  std::string topic;
  bool ok = true;
  std::string text;
  std::string remedy;  ///< empty when ok

  bool operator==(const Finding&) const = default;
};

/// The ranks of one host, together.
struct HostRanks {
  int ranks = 1;
  int cores = 1;  ///< that at least one of them may use
};

/// GPUs that a rank sees.
struct GpuFacts {
  struct Gpu {
    std::string name, driver;
    int64_t memory_bytes = 0, free_bytes = 0;
  };
  bool built = false;  ///< this build can use them
  std::vector<Gpu> gpus;
  std::string problem;  ///< why one of them cannot be used
};

Finding judge_gpus(const GpuFacts& facts, const HostRanks& host);
Finding judge_binding(const comm::CpuFacts& cpu, const HostRanks& host);
Finding judge_thread_level(const std::string& provided);
Finding judge_launch(const comm::LaunchFacts& launch, int world_size);
Finding judge_locked_memory(const comm::LimitFacts& limits);
Finding judge_open_files(const comm::LimitFacts& limits);
Finding judge_shared_memory(const comm::FileSystemFacts& shm, const HostRanks& host);
Finding judge_memory(const comm::MemoryFacts& memory);
Finding judge_huge_pages(const comm::MemoryFacts& memory);
Finding judge_output(const comm::FileSystemFacts& output);
/// `locking`: HDF5_USE_FILE_LOCKING as the user set it.
Finding judge_hdf5_locking(const std::optional<std::string>& locking,
                           const comm::FileSystemFacts& output);

}  // namespace pecia::app
