// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/cluster/machine.hpp"

#include <hwloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <memory>

#include "lib/base/core/error.hpp"
#include "lib/ranks/cluster/cgroup.hpp"

namespace pecia::cluster {
namespace {

/// First line of a small kernel file; empty when there is no such file.
std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// The value of a "key : value" line in /proc/cpuinfo or /proc/meminfo.
std::string proc_value(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (line.compare(0, key.size(), key) != 0 || colon == std::string::npos) continue;
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

int64_t meminfo(std::string_view key) {
  const std::string value = proc_value("/proc/meminfo", key);
  int64_t number = 0;
  std::from_chars(value.data(), value.data() + value.size(), number);
  return value.ends_with("kB") ? number * 1024 : number;
}

/// "always [madvise] never" → "madvise"
std::string bracketed(const std::string& line) {
  const size_t begin = line.find('['), end = line.find(']');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return "";
  return line.substr(begin + 1, end - begin - 1);
}

using Topology =
    std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, decltype(&hwloc_topology_destroy)>;

Topology load_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0)
    fail<SystemError>("hwloc_topology_init: {}", std::strerror(errno));
  Topology topology(raw, hwloc_topology_destroy);
  if (hwloc_topology_load(raw) != 0)
    fail<SystemError>("hwloc_topology_load: {}", std::strerror(errno));
  return topology;
}

/// The next cache of the machine's highest cache level; null after the last one.
hwloc_obj_t next_last_cache(hwloc_topology_t topology, hwloc_obj_t cache) {
  for (const hwloc_obj_type_t level : {HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE})
    if (hwloc_get_nbobjs_by_type(topology, level) > 0)
      return hwloc_get_next_obj_by_type(topology, level, cache);
  return nullptr;
}

std::optional<int64_t> soft_limit(decltype(RLIMIT_NOFILE) resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0) fail<SystemError>("getrlimit: {}", std::strerror(errno));
  if (limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return static_cast<int64_t>(limit.rlim_cur);
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0)
    fail<SystemError>("gethostname: {}", std::strerror(errno));
  return name.data();
}

CpuFacts cpu_facts() {
  const Topology topology = load_topology();
  using Bitmap = std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)>;
  const Bitmap bound(hwloc_bitmap_alloc(), hwloc_bitmap_free);
  const Bitmap both(hwloc_bitmap_alloc(), hwloc_bitmap_free);
  if (hwloc_get_cpubind(topology.get(), bound.get(), HWLOC_CPUBIND_PROCESS) != 0)
    fail<SystemError>("hwloc_get_cpubind: {}", std::strerror(errno));
  hwloc_bitmap_and(bound.get(), bound.get(), hwloc_topology_get_allowed_cpuset(topology.get()));

  CpuFacts facts;
  facts.model = proc_value("/proc/cpuinfo", "model name");
  facts.cores_of_machine = hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_CORE);
  hwloc_obj_t core = nullptr;
  while ((core = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_CORE, core)) != nullptr)
    if (hwloc_bitmap_intersects(core->cpuset, bound.get())) {
      facts.cores.push_back(static_cast<int>(core->logical_index));
      hwloc_bitmap_and(both.get(), core->cpuset, bound.get());
      facts.cpus.push_back(hwloc_bitmap_first(both.get()));
    }
  facts.hardware_threads = hwloc_bitmap_weight(bound.get());
  hwloc_obj_t node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_NUMANODE, node)) != nullptr)
    facts.numa_nodes += hwloc_bitmap_intersects(node->cpuset, bound.get());
  hwloc_obj_t cache = nullptr;
  while ((cache = next_last_cache(topology.get(), cache)) != nullptr)
    if (hwloc_bitmap_intersects(cache->cpuset, bound.get()))
      facts.cache_bytes += static_cast<int64_t>(cache->attr->cache.size);
  facts.quota = cgroup_limits().cpus;
  return facts;
}

std::string hwloc_version() {
  const unsigned version = hwloc_get_api_version();
  return fmt::format("{}.{}.{}", version >> 16, (version >> 8) & 0xffu, version & 0xffu);
}

MemoryFacts memory_facts() {
  MemoryFacts facts;
  facts.total_bytes = meminfo("MemTotal");
  facts.available_bytes =
      std::min(meminfo("MemAvailable"), cgroup_limits().memory_bytes_left.value_or(INT64_MAX));
  facts.huge_page_bytes = meminfo("Hugepagesize");
  facts.huge_pages = meminfo("HugePages_Total");
  facts.transparent_huge_pages =
      bracketed(first_line("/sys/kernel/mm/transparent_hugepage/enabled"));
  return facts;
}

LimitFacts limit_facts() {
  return {soft_limit(RLIMIT_MEMLOCK), soft_limit(RLIMIT_NOFILE), !rdma_devices().empty(),
          soft_limit(RLIMIT_NPROC),   soft_limit(RLIMIT_FSIZE),  soft_limit(RLIMIT_AS)};
}

std::vector<std::string> rdma_devices(const std::filesystem::path& sys) {
  std::vector<std::string> names;
  for (const char* kind : {"class/infiniband", "class/cxi", "class/hfi1"}) {
    std::error_code absent;
    for (const auto& device : std::filesystem::directory_iterator(sys / kind, absent))
      names.push_back(device.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace pecia::cluster
