#pragma once
/// What this process has of its machine: cores it may use, memory, limits, file systems. Facts
/// only; who judges them is `pecia doctor`.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace pecia::comm {

std::string host_name();

struct CpuFacts {
  std::string model;         ///< as the kernel names it
  int cores_of_machine = 0;  ///< physical cores that the machine or the job's cgroup allows
  std::vector<int> cores;    ///< logical numbers of the cores this process is bound to
  int hardware_threads = 0;  ///< of those cores, as far as bound
  int numa_nodes = 0;        ///< that those cores belong to
};
/// SystemError when hwloc cannot read the machine.
CpuFacts cpu_facts();

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
};
LimitFacts limit_facts();

struct FileSystemFacts {
  std::filesystem::path path;  ///< the nearest existing folder
  std::string type;            ///< as mounted: "ext4", "lustre", "nfs4", …; "?" when unknown
  bool network = false;        ///< shared between machines
  bool writable = false;
  int64_t total_bytes = 0, free_bytes = 0;
};
/// Of a folder, or of what will hold it. SystemError when it cannot be looked at.
FileSystemFacts file_system_facts(const std::filesystem::path& folder);

}  // namespace pecia::comm
