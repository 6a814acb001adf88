// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/tensors.hpp"

namespace pecia::test {

std::vector<std::string> every_device() {
  std::vector<std::string> devices{"reference", "cpu", "cpu_3_threads"};
  if (kernels::cpu_has_bf16_products()) {
    devices.push_back("cpu_bf16");
    devices.push_back("cpu_amx_twin");
  }
  if (kernels::why_no_products(kernels::MatmulKind::amx).empty()) devices.push_back("cpu_amx");
  return devices;
}

std::vector<std::string> every_attention_device() {
  std::vector<std::string> devices{"cpu", "cpu_3_threads"};
  if (kernels::cpu_has_bf16_products()) {
    devices.push_back("cpu_bf16");
    devices.push_back("cpu_amx_twin");
  }
  if (kernels::why_no_products(kernels::MatmulKind::amx).empty()) devices.push_back("cpu_amx");
  return devices;
}

std::vector<std::string> every_kernel_of_many_rows() {
  return {};
}

std::vector<std::string> every_device_of_experts() {
  return every_device();
}

Device make_device(const std::string& name) {
  return make_host_backend(name);
}

}  // namespace pecia::test
