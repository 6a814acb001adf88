// SPDX-License-Identifier: Apache-2.0
#include "lib/base/core/error.hpp"
#include "lib/base/device/cuda_device.hpp"

namespace pecia::device {
namespace {

[[noreturn]] void refuse() {
  fail<Unsupported>(
      "this pecia was built without CUDA; set backend: cpu (or auto) in the job file");
}

}  // namespace

bool has_cuda() {
  return false;
}

int num_cuda_devices() {
  return 0;
}

std::string cuda_toolkit() {
  return "";
}

CudaAccess cuda_access(int) {
  refuse();
}

std::unique_ptr<Device> make_cuda_device(int) {
  refuse();
}

bool is_cuda_device(const Device&) {
  return false;
}

}  // namespace pecia::device
