// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "kernels/api/backend.hpp"
#include "lib/base/device/cuda_device.hpp"

namespace pecia::test {
namespace {

/// Run with CUDA_VISIBLE_DEVICES empty, so that there is no GPU on any machine.
TEST(WithoutGpu, MakingADeviceSaysWhatToDo) {
  try {
    device::make_cuda_device(0);
    FAIL() << "a GPU was found";
  } catch (const Unsupported& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("driver"), std::string::npos) << message;
    EXPECT_NE(message.find("backend: cpu"), std::string::npos) << message;
    EXPECT_NE(message.find("cudaGetDeviceCount"), std::string::npos) << message;
  }
}

TEST(WithoutGpu, TheBackendRefusesTheHost) {
  const auto host = device::make_host_device(1);
  EXPECT_THROW(kernels::make_cuda_backend(*host), InvalidArgument);
}

}  // namespace
}  // namespace pecia::test
