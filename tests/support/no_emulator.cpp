// SPDX-License-Identifier: Apache-2.0
/// In place of the emulator of the CUDA backend, whose sources take long to compile, in cross builds.

#include "lib/base/core/error.hpp"
#include "tests/kernels/emulator/backend.hpp"
#include "tests/kernels/emulator/plain_sdpa.hpp"

namespace pecia::test {

std::unique_ptr<kernels::Backend> make_emulated_backend(device::Device&, Products) {
  fail<Unsupported>("cross builds have no emulated GPUs; unset PECIA_TEST_PLACE");
}

std::unique_ptr<kernels::Backend> make_emulated_backend(device::Device& device,
                                                        std::unique_ptr<kernels::cuda::Sdpa>) {
  return make_emulated_backend(device);
}

std::unique_ptr<kernels::cuda::Sdpa> make_plain_sdpa(SdpaCalls&) {
  return nullptr;
}

}  // namespace pecia::test
