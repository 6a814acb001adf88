#include "tests/kernels/emulator/backend.hpp"
#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

device::Device& host() {
  static const auto device = device::make_host_device(1);
  return *device;
}

}  // namespace

std::vector<std::string> every_device() {
  return {"reference", "cpu", "cpu_3_threads", "emulated"};
}

Device make_device(const std::string& name) {
  if (name == "reference") return {kernels::make_reference_backend(), device::Stream(1)};
  if (name == "emulated") return {make_emulated_backend(host()), device::Stream(1), true};
  return {kernels::make_cpu_backend(), device::Stream(name == "cpu" ? 1 : 3)};
}

}  // namespace pecia::test
