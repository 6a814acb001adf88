// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>

#include "lib/ranks/cluster/machine.hpp"
#include "tests/support/temp_folder.hpp"

namespace pecia::cluster {
namespace {

class Folders : public testing::Test {
 protected:
  test::TempFolder own_;
  std::filesystem::path folder_ = own_.path();
};

TEST_F(Folders, RdmaDevicesAreNamedOnce) {
  EXPECT_TRUE(rdma_devices(folder_).empty());
  for (const char* device : {"infiniband/mlx5_1", "infiniband/mlx5_0", "cxi/cxi0"})
    std::filesystem::create_directories(folder_ / "class" / device);
  EXPECT_EQ(rdma_devices(folder_), (std::vector<std::string>{"cxi0", "mlx5_0", "mlx5_1"}));
}

TEST_F(Folders, AreWrittenToAndLeftAsTheyWere) {
  const WriteFacts facts = try_writing(folder_);
  EXPECT_EQ(facts.problem, "");
  EXPECT_EQ(facts.no_locks, "");
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  EXPECT_NE(try_writing(folder_ / "absent").problem, "");
}

}  // namespace
}  // namespace pecia::cluster
