// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>

#include "lib/ranks/cluster/gpu_host.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::cluster {
namespace {

using Names = std::vector<std::string>;

TEST(GpuList, HasGpusAndInstances) {
  const GpuHostFacts facts = read_gpu_list(
      "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-5d0b)\n"
      "  MIG 3g.40gb     Device  0: (UUID: MIG-7a1c)\n"
      "  MIG 3g.40gb     Device  1: (UUID: MIG-90ff)\n"
      "GPU 1: NVIDIA H200 (UUID: GPU-11ee)\n");
  EXPECT_EQ(facts.gpus, (Names{"NVIDIA H100 80GB HBM3", "NVIDIA H200"}));
  EXPECT_EQ(facts.instances, (Names{"MIG-7a1c", "MIG-90ff"}));
}

TEST(GpuList, IsEmptyForOtherWords) {
  const GpuHostFacts facts = read_gpu_list("No devices found.\n");
  EXPECT_TRUE(facts.gpus.empty() && facts.instances.empty());
}

/// With a folder of its own first on the PATH.
class NvidiaSmi : public testing::Test {
 protected:
  NvidiaSmi() { setenv("PATH", (folder_.path().string() + ":" + path_).c_str(), 1); }
  ~NvidiaSmi() override { setenv("PATH", path_.c_str(), 1); }
  void write(const std::string& script) {
    const auto file = folder_.path() / "nvidia-smi";
    folder_.write("nvidia-smi", "#!/bin/sh\n" + script + "\n");
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  }

  std::string path_ = std::getenv("PATH");
  test::TempFolder folder_;
};

TEST_F(NvidiaSmi, TellsGpusAndTheDriver) {
  write(
      "case $1 in -L) echo 'GPU 0: A (UUID: GPU-1)'; echo 'GPU 1: B (UUID: GPU-2)' ;; "
      "*) echo 580.65.06; echo 580.65.06 ;; esac");
  const GpuHostFacts facts = gpu_host_facts();
  EXPECT_EQ(facts.gpus, (Names{"A", "B"}));
  EXPECT_EQ(facts.driver, "580.65.06");
}

TEST_F(NvidiaSmi, ThatFailsTellsNothing) {
  write("echo 'GPU 0: A (UUID: GPU-1)'; exit 9");
  const GpuHostFacts facts = gpu_host_facts();
  EXPECT_TRUE(facts.gpus.empty());
  EXPECT_EQ(facts.driver, "");
}

TEST(SysFolder, NamesInterfacesThatAreUpAndTheModule) {
  const test::TempFolder folder;
  EXPECT_TRUE(network_interfaces(folder.path()).empty());
  for (const auto& [name, state] : {std::pair{"ib0", "up"},
                                    {"eth0", "up"},
                                    {"eth1", "down"},
                                    {"lo", "unknown"},
                                    {"tun0", "unknown"}}) {
    std::filesystem::create_directories(folder.path() / "class/net" / name);
    folder.write(std::string("class/net/") + name + "/operstate", std::string(state) + "\n");
  }
  EXPECT_EQ(network_interfaces(folder.path()), (Names{"eth0", "ib0", "tun0"}));

  EXPECT_FALSE(has_peer_memory_module(folder.path()));
  std::filesystem::create_directories(folder.path() / "module/nvidia_peermem");
  EXPECT_TRUE(has_peer_memory_module(folder.path()));
}

}  // namespace
}  // namespace pecia::cluster
