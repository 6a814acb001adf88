#pragma once
#include <memory>

#include "kernels/api/backend.hpp"

namespace pecia::test {

/// The CUDA backend's own code, its kernels run by the emulator and its libraries replaced by plain
/// loops: on a device whose memory the CPU can touch when its streams run.
std::unique_ptr<kernels::Backend> make_emulated_backend(device::Device& device);

}  // namespace pecia::test
