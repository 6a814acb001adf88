// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.hpp"
#include "lib/base/device/cuda_device.hpp"
#include "tests/kernels/device_copies.hpp"
#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

device::Device& gpu() {
  static const auto device = device::make_cuda_device(0);
  return *device;
}

}  // namespace

std::vector<std::string> every_device() {
  return {"cuda"};
}

std::vector<std::string> every_attention_device() {
  return {"cuda", "cuda_own_kernels"};
}

std::vector<std::string> every_kernel_of_many_rows() {
  if (kernels::cuda::find_wgmma_attention(gpu()).attend == nullptr) return {};
  return {"cuda_wgmma"};
}

std::vector<std::string> every_device_of_experts() {
  return {"cuda", "cuda_own_kernels"};
}

Device make_device(const std::string& name) {
  if (name == "cuda")
    return {run_on_copies(gpu(), kernels::make_cuda_backend(gpu())), device::Stream(1), true};
  if (name == "cuda_own_kernels")
    return {
        run_on_copies(gpu(), kernels::make_cuda_backend(gpu(), kernels::AttentionBy::own_kernels,
                                                        kernels::ExpertsBy::own_kernels)),
        device::Stream(1), true};
  if (name == "cuda_wgmma") {
    kernels::cuda::Libraries libraries = {kernels::cuda::make_cublas_matmul(gpu()),
                                          kernels::cuda::make_cub_row_sort(gpu()),
                                          {nullptr, "this test takes none"},
                                          {nullptr, "this test takes none"}};
    libraries.wgmma = kernels::cuda::find_wgmma_attention(gpu());
    libraries.wgmma.least_rows = 1;
    libraries.wgmma.is_checked_at_start = false;
    return {run_on_copies(gpu(), kernels::cuda::make_backend(gpu(), std::move(libraries))),
            device::Stream(1), true};
  }
  return make_host_backend(name);
}

}  // namespace pecia::test

/// By default the tests of this device, without those that need no GPU, and without a property that
/// cuBLAS does not have: the algorithm of a product follows from its number of rows, and with it
/// the bits of each.
int main(int argc, char** argv) {
  testing::GTEST_FLAG(filter) = "Backends*/*-*OfARowDoesNotDependOnTheRowsBesideIt*";
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
