// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>

#include "lib/ranks/cluster/cgroup.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::cluster {
namespace {

class Cgroups : public testing::Test {
 protected:
  CgroupLimits limits_of(const std::string& groups) const {
    write("groups", groups);
    return cgroup_limits(folder_ / "groups", folder_);
  }
  void write(const std::filesystem::path& file, const std::string& text) const {
    std::filesystem::create_directories((folder_ / file).parent_path());
    std::ofstream(folder_ / file) << text;
  }

  test::TempFolder own_;
  std::filesystem::path folder_ = own_.path();
};

TEST_F(Cgroups, LimitNothingWhereTheyAreNotOrSayMax) {
  EXPECT_EQ(cgroup_limits(folder_ / "absent", folder_).cpus, std::nullopt);
  write("job/cpu.max", "max 100000\n");
  write("job/memory.max", "max\n");
  write("job/memory.current", "1000\n");
  const CgroupLimits limits = limits_of("0::/job\n");
  EXPECT_EQ(limits.cpus, std::nullopt);
  EXPECT_EQ(limits.memory_bytes_left, std::nullopt);
}

TEST_F(Cgroups, OfVersion2LimitWhatIsBelowThem) {
  write("job/cpu.max", "150000 100000\n");
  write("job/memory.max", "5000\n");
  write("job/memory.current", "1000\n");
  write("job/step/cpu.max", "400000 100000\n");
  write("job/step/memory.max", "4500\n");
  write("job/step/memory.current", "700\n");
  const CgroupLimits limits = limits_of("0::/job/step\n");
  EXPECT_EQ(limits.cpus, 1.5);
  EXPECT_EQ(limits.memory_bytes_left, 3800);
}

TEST_F(Cgroups, OfVersion1HaveAHierarchyForEachController) {
  write("cpu/job/cpu.cfs_quota_us", "100000\n");
  write("cpu/job/cpu.cfs_period_us", "100000\n");
  write("cpu/cpu.cfs_quota_us", "-1\n");
  write("cpu/cpu.cfs_period_us", "100000\n");
  write("memory/memory.limit_in_bytes", "4000\n");
  write("memory/memory.usage_in_bytes", "5000\n");
  const CgroupLimits limits = limits_of("9:name=systemd:/x\n4:cpu,cpuacct:/job\n3:memory:/\n");
  EXPECT_EQ(limits.cpus, 1.0);
  EXPECT_EQ(limits.memory_bytes_left, 0);
}

}  // namespace
}  // namespace pecia::cluster
