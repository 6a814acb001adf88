#pragma once
#include <memory>

#include "kernels/api/backend.hpp"

namespace pecia::test {

/// The CUDA backend's own code, its kernels run by the emulator and its libraries replaced by plain
/// loops: on the host's device.
std::unique_ptr<kernels::Backend> make_emulated_backend(device::Device& host);

}  // namespace pecia::test
