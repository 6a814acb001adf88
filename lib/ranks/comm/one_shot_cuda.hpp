// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "lib/base/device/device.hpp"
#include "lib/ranks/comm/communicator.hpp"
#include "lib/ranks/comm/one_shot.hpp"
#include "lib/ranks/comm/one_shot_layout.hpp"

namespace pecia::comm {

/// map_one_shot where one_shot_switch asks for such sums, and `most_bytes` is not 0.
FoundOneShot find_one_shot_of_cuda(Communicator& host, device::Device& device, int64_t most_bytes);

/// Launches the kernel for values of fp32 or bf16.
void launch_one_shot(const OneShotParams& params, DType dtype, device::Stream& stream);

}  // namespace pecia::comm
