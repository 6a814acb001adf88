// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The part of the machine that this process may use: cores, memory, limits, file systems. These
/// are facts only; `pecia doctor` judges them.

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
  std::vector<int> cpus;     ///< system number of one hardware thread per core
  int hardware_threads = 0;  ///< hardware threads of these cores that the process is bound to
  int numa_nodes = 0;        ///< number of NUMA nodes that these cores belong to
  int64_t cache_bytes = 0;   ///< sum over the last-level caches of these cores
  std::optional<double> quota = {};  ///< CPU time per time that the cgroup grants; absent: all
};
/// Throws SystemError when hwloc cannot read the machine.
CpuFacts cpu_facts();
std::string hwloc_version();

struct MemoryFacts {
  int64_t total_bytes = 0;
  int64_t available_bytes = 0;         ///< without swapping; at most what the job's cgroup leaves
  int64_t huge_page_bytes = 0;         ///< size of one huge page
  int64_t huge_pages = 0;              ///< number of reserved huge pages
  std::string transparent_huge_pages;  ///< always, madvise or never; empty: not known
};
MemoryFacts memory_facts();

/// Soft limits of the process; absent: unlimited.
struct LimitFacts {
  std::optional<int64_t> locked_memory_bytes, open_files;
  bool rdma_devices = false;  ///< the host has a network that needs locked memory
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
  std::optional<int64_t> free_files = {};  ///< files that may still be created; absent: no limit
};
/// The file system of a folder, or of a folder yet to be made. Throws SystemError when it cannot be
/// examined.
FileSystemFacts file_system_facts(const std::filesystem::path& folder);

/// What a trial file in a folder showed.
struct WriteFacts {
  std::string problem;   ///< why no file can be written; the other fields are then unset
  std::string no_locks;  ///< why flock does not work; empty if it works
  bool sparse = false;   ///< a large file without data takes no space
};
/// Makes a file in an existing folder and removes it.
WriteFacts try_writing(const std::filesystem::path& folder);

}  // namespace pecia::cluster
