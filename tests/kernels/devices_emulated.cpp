// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/device_copies.hpp"
#include "tests/kernels/emulator/backend.hpp"
#include "tests/kernels/emulator/plain_grouped_matmul.hpp"
#include "tests/kernels/emulator/plain_sdpa.hpp"
#include "tests/kernels/tensors.hpp"
#include "tests/support/separate_device.hpp"

namespace pecia::test {
namespace {

device::Device& host() {
  static const auto device = device::make_host_device(1);
  return *device;
}

/// A GPU whose blocks may have as much shared memory as those of an H100.
device::Device& with_large_blocks() {
  static const auto device =
      make_separate_device({.info = {"large blocks", 90, 1, "", "", "", int64_t{227} << 10}});
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

std::vector<std::string> every_kernel_of_many_rows() {
  return {"emulated_wgmma"};
}

std::vector<std::string> every_device_of_experts() {
  return {"emulated", "emulated_large_blocks", "emulated_groups"};
}

Device make_device(const std::string& name) {
  if (name == "emulated") return {make_emulated_backend(host()), device::Stream(1), true};
  if (name == "emulated_library") {
    static SdpaCalls calls;
    return {make_emulated_backend(host(), make_plain_sdpa(calls)), device::Stream(1), true};
  }
  if (name == "emulated_wgmma")
    return {make_emulated_backend(host(), {.attend = kernels::cuda::attend_by_wgmma,
                                           .least_rows = 1,
                                           .is_checked_at_start = false}),
            device::Stream(1), true};
  if (name == "emulated_groups") {
    static int calls;
    return {
        run_on_copies(with_large_blocks(),
                      make_emulated_backend(with_large_blocks(), make_plain_grouped_matmul(calls))),
        device::Stream(1), true};
  }
  if (name == "emulated_large_blocks")
    return {run_on_copies(with_large_blocks(), make_emulated_backend(with_large_blocks())),
            device::Stream(1), true};
  return make_host_backend(name);
}

}  // namespace pecia::test
