#include "tests/kernels/device_copies.hpp"
#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

device::Device& gpu() {
  static const auto device = kernels::make_cuda_device(0);
  return *device;
}

}  // namespace

std::vector<std::string> every_device() {
  return {"cuda"};
}

Device make_device(const std::string& name) {
  if (name == "cuda")
    return {run_on_copies(gpu(), kernels::make_cuda_backend(gpu())), device::Stream(1), true};
  return make_host_backend(name);
}

}  // namespace pecia::test
