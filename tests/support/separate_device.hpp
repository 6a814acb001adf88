// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A device that is as far from the host as a GPU: its memory is not the host's, and its work is
/// done later. For testing without a GPU what stands above kernels.
///
/// - Touching its memory other than by its ops and copies ends the process (SIGSEGV).
/// - Ops and copies run when the host waits for their stream or an event after them, no sooner, so
///   that whoever reads a result, or gives pinned memory other contents, before that gets garbage.
/// - As with CUDA, pageable memory that a copy reads may change once the call has returned, and a
///   copy to pageable memory is done then.
/// - Its events tell the time of a clock of its own, which work alone moves: each piece of work, an
///   op or a copy, takes its stream separate_work_ns, and a stream that waits for another goes on
///   at the time of what it waited for. It stands at 0 when a stream is made.

#include <functional>
#include <memory>

#include "tests/support/owned_compute.hpp"

namespace pecia::test {

inline constexpr int64_t separate_work_ns = 1000;

struct SeparateSettings {
  device::DeviceInfo info{"separate", 0, 1, "", ""};
  int64_t memory_bytes = int64_t{1} << 30;
  std::function<void()> before_work = {};  ///< may throw: then the work is not done
};
std::unique_ptr<device::Device> make_separate_device(SeparateSettings settings = {});

/// The CPU's ops on the memory of a separate device. Products that `is_made` denies are left out.
std::unique_ptr<kernels::Backend> make_separate_backend(
    std::function<bool(const kernels::LinearArgs&)> is_made = {});

/// Waits for all its streams.
void settle(device::Device& device);

struct SeparateCompute : OwnedCompute {
  SeparateCompute() : OwnedCompute(make_separate_device(), make_separate_backend()) {}
};

}  // namespace pecia::test
