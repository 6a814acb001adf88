// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>

#include "kernels/api/backend.hpp"

namespace pecia::test {

/// A backend of a device, as tests of the host use one: tensors are the host's, copied to the
/// device before an op and back after it, with all that lies between their rows. Works on a stream
/// of its own and is done on return; the stream given is ignored. `device` outlives it.
std::unique_ptr<kernels::Backend> run_on_copies(device::Device& device,
                                                std::unique_ptr<kernels::Backend> backend);

}  // namespace pecia::test
