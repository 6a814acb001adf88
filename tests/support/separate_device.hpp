#pragma once
/// A device that is as far from the host as a GPU: its memory is not the host's, and its work is
/// done later. For testing without a GPU what stands above kernels.
///
/// - Touching its memory other than by its ops and copies ends the process (SIGSEGV).
/// - Ops and copies run when the host waits for their stream or an event after them, no sooner, so
///   that whoever reads a result, or gives pinned memory other contents, before that gets garbage.
/// - As with CUDA, pageable memory that a copy reads may change once the call has returned, and a
///   copy to pageable memory is done then.

#include <memory>

#include "tests/support/owned_compute.hpp"

namespace pecia::test {

std::unique_ptr<device::Device> make_separate_device();

/// The CPU's ops on the memory of a separate device.
std::unique_ptr<kernels::Backend> make_separate_backend();

/// Waits for all its streams.
void settle(device::Device& device);

struct SeparateCompute : OwnedCompute {
  SeparateCompute() : OwnedCompute(make_separate_device(), make_separate_backend()) {}
};

}  // namespace pecia::test
