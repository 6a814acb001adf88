// SPDX-License-Identifier: Apache-2.0
/// In place of a build with CUDA: GPUs whose memory and work are a separate device's, for whole runs
/// of the program. There are as many as ranks may want. PECIA_LOSE_GPU=INDEX:FILE: once FILE is
/// there, GPU INDEX is lost, as with an illegal access of a kernel.

#include <cstdlib>
#include <filesystem>
#include <string>

#include "lib/base/device/cuda/cuda_check.hpp"
#include "lib/base/device/cuda_device.hpp"
#include "tests/support/separate_device.hpp"

namespace pecia {
namespace {

std::function<void()> loss_of(int index) {
  const char* const text = std::getenv("PECIA_LOSE_GPU");
  if (text == nullptr) return {};
  const std::string wanted = text;
  const size_t colon = wanted.find(':');
  if (std::stoi(wanted.substr(0, colon)) != index) return {};
  return [file = wanted.substr(colon + 1)] {
    if (std::filesystem::exists(file)) PECIA_CUDA_CHECK(cudaErrorIllegalAddress);
  };
}

/// Products of the peak's measurement would take the CPU minutes.
bool is_made(const kernels::LinearArgs& args) {
  constexpr int64_t most_rows = 4096;
  return args.x.rows() <= most_rows;
}

}  // namespace

namespace device {

bool has_cuda() {
  return true;
}

int num_cuda_devices() {
  return 8;
}

std::string cuda_toolkit() {
  return "13.0";
}

CudaAccess cuda_access(int) {
  return {std::vector<bool>(num_cuda_devices(), true), true};
}

std::unique_ptr<Device> make_cuda_device(int index) {
  test::SeparateSettings settings;
  settings.info = {"fake GPU",
                   90,
                   4,
                   "CUDA 13.0",
                   fmt::format("0000:{:02x}:00", index),
                   fmt::format("GPU-00000000-0000-0000-0000-{:012x}", index)};
  settings.memory_bytes = int64_t{64} << 30;
  settings.before_work = loss_of(index);
  return test::make_separate_device(std::move(settings));
}

bool is_cuda_device(const Device&) {
  return true;
}

}  // namespace device

std::unique_ptr<kernels::Backend> kernels::make_cuda_backend(device::Device&, AttentionBy,
                                                             ExpertsBy) {
  return test::make_separate_backend(is_made);
}

}  // namespace pecia
