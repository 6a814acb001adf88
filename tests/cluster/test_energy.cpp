// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "lib/ranks/cluster/energy.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::cluster {
namespace {

class EnergyCounters : public testing::Test {
 protected:
  void zone(const std::string& zone, const std::string& name, const std::string& energy_uj) {
    std::filesystem::create_directories(folder_ / zone);
    folder_.write(zone + "/name", name + "\n");
    folder_.write(zone + "/max_energy_range_uj", "1000000000\n");
    folder_.write(zone + "/energy_uj", energy_uj + "\n");
  }
  EnergyMeter::Sources sources() const { return {.powercap = folder_.path()}; }

  test::TempFolder folder_{"energy-"};
};

TEST_F(EnergyCounters, OfPackagesAndTheirMemoryAddUp) {
  zone("intel-rapl:0", "package-0", "5000000");
  zone("intel-rapl:0:0", "core", "1000000");
  zone("intel-rapl:0:1", "dram", "2000000");
  zone("intel-rapl:1", "psys", "9000000");
  EnergyMeter meter(sources());
  zone("intel-rapl:0", "package-0", "8000000");
  zone("intel-rapl:0:0", "core", "3000000");
  zone("intel-rapl:0:1", "dram", "2500000");
  zone("intel-rapl:1", "psys", "99000000");
  const Energy used = meter.used();
  ASSERT_TRUE(used.cpus) << used.why_no_cpus;
  EXPECT_NEAR(*used.cpus, 3.5, 1e-9);
  EXPECT_FALSE(used.gpu);
  EXPECT_EQ(used.why_no_gpu, "");
}

TEST_F(EnergyCounters, ReturnToZero) {
  zone("intel-rapl:0", "package-0", "999000000");
  EnergyMeter meter(sources());
  zone("intel-rapl:0", "package-0", "2000000");
  EXPECT_NEAR(meter.used().cpus.value_or(-1), 3, 1e-9);
  zone("intel-rapl:0", "package-0", "4000000");
  EXPECT_NEAR(meter.used().cpus.value_or(-1), 5, 1e-9);
}

TEST_F(EnergyCounters, ThatAreNotThereOrCannotBeReadAreNoZeros) {
  EnergyMeter none(sources());
  EXPECT_FALSE(none.used().cpus);
  EXPECT_NE(none.used().why_no_cpus.find("no counter of a processor"), std::string::npos);
  zone("intel-rapl:0", "package-0", "1");
  zone("intel-rapl:1", "package-1", "");
  EnergyMeter part(sources());
  EXPECT_FALSE(part.used().cpus);
  EXPECT_NE(part.used().why_no_cpus.find("intel-rapl:1/energy_uj cannot be read"),
            std::string::npos);
}

TEST_F(EnergyCounters, OfAGpuAreThoseOfNvml) {
  EnergyMeter meter({.cpus = false, .gpu_uuid = "GPU-double", .nvml = PECIA_NVML_DOUBLE});
  const Energy used = meter.used();
  ASSERT_TRUE(used.gpu) << used.why_no_gpu;
  EXPECT_NEAR(*used.gpu, 250, 1e-9);
  EXPECT_FALSE(used.cpus);
  EXPECT_EQ(used.why_no_cpus, "");
  EnergyMeter other({.cpus = false, .gpu_uuid = "GPU-other", .nvml = PECIA_NVML_DOUBLE});
  EXPECT_FALSE(other.used().gpu);
  EXPECT_NE(other.used().why_no_gpu.find("GPU-other gave 6"), std::string::npos);
  EnergyMeter absent({.cpus = false, .gpu_uuid = "GPU-double", .nvml = "libno-such-nvml.so"});
  EXPECT_EQ(absent.used().why_no_gpu, "libno-such-nvml.so cannot be loaded");
}

}  // namespace
}  // namespace pecia::cluster
