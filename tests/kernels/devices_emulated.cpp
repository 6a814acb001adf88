// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/emulator/backend.hpp"
#include "tests/kernels/emulator/plain_sdpa.hpp"
#include "tests/kernels/tensors.hpp"

namespace pecia::test {
namespace {

device::Device& host() {
  static const auto device = device::make_host_device(1);
  return *device;
}

}  // namespace

std::vector<std::string> every_device() {
  return {"emulated"};
}

/// The kernels alone at such sizes take minutes; their tests are those of every_device.
std::vector<std::string> every_attention_device() {
  return {"emulated_library"};
}

Device make_device(const std::string& name) {
  if (name == "emulated") return {make_emulated_backend(host()), device::Stream(1), true};
  if (name == "emulated_library") {
    static SdpaCalls calls;
    return {make_emulated_backend(host(), make_plain_sdpa(calls)), device::Stream(1), true};
  }
  return make_host_backend(name);
}

}  // namespace pecia::test
