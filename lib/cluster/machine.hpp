// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What this process has of its machine: cores it may use, memory, limits, file systems. Facts
/// only; who judges them is `pecia doctor`.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace pecia::cluster {

std::string host_name();

struct CpuFacts {
  std::string model;         ///< as the kernel names it
  int cores_of_machine = 0;  ///< physical cores that the machine or the job's cgroup allows
  std::vector<int> cores;    ///< logical numbers of the cores this process is bound to
  std::vector<int> cpus;     ///< of each of them the system's number of one hardware thread
  int hardware_threads = 0;  ///< of those cores, as far as bound
  int numa_nodes = 0;        ///< that those cores belong to
  int64_t cache_bytes = 0;   ///< of the last-level caches of those cores, together
  std::optional<double> quota =
      {};  ///< CPUs' worth of time that the job's cgroup grants; absent: all
};
/// SystemError when hwloc cannot read the machine.
CpuFacts cpu_facts();
std::string hwloc_version();

struct MemoryFacts {
  int64_t total_bytes = 0;
  int64_t available_bytes = 0;         ///< without swapping, no more than the job's cgroup leaves
  int64_t huge_page_bytes = 0;         ///< size of one
  int64_t huge_pages = 0;              ///< reserved
  std::string transparent_huge_pages;  ///< always, madvise or never; empty: the kernel does not say
};
MemoryFacts memory_facts();

/// Soft limits; absent: unlimited.
struct LimitFacts {
  std::optional<int64_t> locked_memory_bytes, open_files;
  bool rdma_devices = false;  ///< a network that needs locked memory is there
  std::optional<int64_t> processes = {}, file_bytes = {}, address_space_bytes = {};
};
LimitFacts limit_facts();

/// Names of RDMA devices, as "mlx5_0", "hfi1_0", "cxi0", that the kernel shows under `sys`.
std::vector<std::string> rdma_devices(const std::filesystem::path& sys = "/sys");

struct FileSystemFacts {
  std::filesystem::path path;  ///< the nearest existing folder
  std::string type;            ///< as mounted: "ext4", "lustre", "nfs4", …; "?" when unknown
  bool network = false;        ///< shared between machines
  bool writable = false;
  int64_t total_bytes = 0, free_bytes = 0;
  std::optional<int64_t> free_files = {};  ///< that may still be made; absent: no limit
};
/// Of a folder, or of what will hold it. SystemError when it cannot be looked at.
FileSystemFacts file_system_facts(const std::filesystem::path& folder);

/// What a file in a folder was found to do.
struct WriteFacts {
  std::string problem;   ///< why none can be written; the rest says nothing then
  std::string no_locks;  ///< why flock does not work; empty: it does
  bool sparse = false;   ///< a large file without data takes no room
};
/// Makes a file in an existing folder, and removes it.
WriteFacts try_writing(const std::filesystem::path& folder);

}  // namespace pecia::cluster
