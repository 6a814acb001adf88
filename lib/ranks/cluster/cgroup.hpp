// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the cgroups above this process allow it, for cgroup versions 1 and 2.

#include <cstdint>
#include <filesystem>
#include <optional>

namespace pecia::cluster {

struct CgroupLimits {
  std::optional<int64_t> memory_bytes_left;
  std::optional<double> cpus;  ///< processor time per time; absent: no quota
};
/// The strictest limits of the process's groups and the groups above them. `of_process` lists the
/// groups as /proc/PID/cgroup does; `mounted` is where they are mounted. Files that cannot be read
/// set no limit.
CgroupLimits cgroup_limits(const std::filesystem::path& of_process = "/proc/self/cgroup",
                           const std::filesystem::path& mounted = "/sys/fs/cgroup");

}  // namespace pecia::cluster
