// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The GPUs that this process sees, as devices. This header needs no CUDA headers, and a build
/// without CUDA has these functions, too (cuda/disabled.cpp).

#include <memory>
#include <string>
#include <vector>

#include "lib/base/device/device.hpp"

namespace pecia::device {

/// Tells whether this build has CUDA.
bool has_cuda();

/// Counts the GPUs that the process sees. There are 0 without a driver, and without has_cuda.
int num_cuda_devices();

/// The version of CUDA that this build was made with, as "13.0"; "" without has_cuda.
std::string cuda_toolkit();

/// Who reaches the memory of a GPU directly.
struct CudaAccess {
  std::vector<bool> peers;  ///< for each GPU that the process sees: can this one reach its memory?
  bool by_network = false;  ///< the driver can hand its memory to network devices (DMA-BUF)
};
/// Throws as make_cuda_device does.
CudaAccess cuda_access(int index);

/// Makes a device of GPU `index` among the GPUs that the process sees. Throws Unsupported in a
/// build without CUDA, if no driver or GPU is found, and for a GPU for which this build has no
/// code. Throws InputError for an index that no GPU has.
std::unique_ptr<Device> make_cuda_device(int index);

/// Tells whether make_cuda_device made the device.
bool is_cuda_device(const Device& device);

}  // namespace pecia::device
