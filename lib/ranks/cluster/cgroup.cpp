// SPDX-License-Identifier: Apache-2.0
#include "lib/ranks/cluster/cgroup.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <string>

namespace pecia::cluster {
namespace {

using std::filesystem::path;

/// The leading numbers of a kernel file, up to the first word that is no number ("max").
template <size_t kCount>
std::array<std::optional<int64_t>, kCount> numbers_in(const path& file) {
  std::array<std::optional<int64_t>, kCount> numbers;
  std::ifstream stream(file);
  for (std::optional<int64_t>& number : numbers)
    if (int64_t value = 0; stream >> value) number = value;
  return numbers;
}

std::optional<int64_t> number_in(const path& file) {
  return numbers_in<1>(file)[0];
}

template <typename Number>
void lower(std::optional<Number>& limit, std::optional<Number> other) {
  if (other) limit = std::min(limit.value_or(*other), *other);
}

std::optional<int64_t> left_of(std::optional<int64_t> limit, std::optional<int64_t> used) {
  if (!limit || !used) return std::nullopt;
  return std::max<int64_t>(0, *limit - *used);
}

/// Version 1 writes −1 when there is no limit.
std::optional<double> cpus_of(std::optional<int64_t> quota, std::optional<int64_t> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

/// Calls visit(folder) for a group and the groups above it, up to the root of its hierarchy.
template <typename Visit>
void for_each_above(const path& root, const std::string& group, const Visit& visit) {
  for (path below = path(group).relative_path();; below = below.parent_path()) {
    visit(root / below);
    if (below.empty()) return;
  }
}

}  // namespace

CgroupLimits cgroup_limits(const path& of_process, const path& mounted) {
  CgroupLimits limits;
  std::ifstream groups(of_process);
  // Version 2 writes "0::/group", version 1 "4:cpu,cpuacct:/group".
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (controllers == ",,")
      for_each_above(mounted, group, [&](const path& folder) {
        lower(limits.memory_bytes_left,
              left_of(number_in(folder / "memory.max"), number_in(folder / "memory.current")));
        const auto [quota, period] = numbers_in<2>(folder / "cpu.max");
        lower(limits.cpus, cpus_of(quota, period));
      });
    if (controllers.find(",memory,") != std::string::npos)
      for_each_above(mounted / "memory", group, [&](const path& folder) {
        lower(limits.memory_bytes_left, left_of(number_in(folder / "memory.limit_in_bytes"),
                                                number_in(folder / "memory.usage_in_bytes")));
      });
    if (controllers.find(",cpu,") != std::string::npos)
      for_each_above(mounted / "cpu", group, [&](const path& folder) {
        lower(limits.cpus, cpus_of(number_in(folder / "cpu.cfs_quota_us"),
                                   number_in(folder / "cpu.cfs_period_us")));
      });
  }
  return limits;
}

}  // namespace pecia::cluster
