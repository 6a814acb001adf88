// SPDX-License-Identifier: Apache-2.0
#include "kernels/api/backend.hpp"

namespace pecia::kernels {
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

std::unique_ptr<device::Device> make_cuda_device(int) {
  refuse();
}

std::unique_ptr<Backend> make_cuda_backend(device::Device&, AttentionBy) {
  refuse();
}

}  // namespace pecia::kernels
