// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Shows the spans of a Recorder to a profiler of NVIDIA (Nsight Systems), as NVTX ranges of the
/// thread. So its time line has the names of our trace above the kernels. Without a profiler a range
/// takes a few nanoseconds. A build with CUDA has ranges; in other builds these functions do nothing.

namespace pecia::report {

bool has_profiler_ranges();

/// Begins a range inside the thread's open ones, which end in the opposite order. `name` is copied.
void begin_profiler_range(const char* name) noexcept;
void end_profiler_range() noexcept;

}  // namespace pecia::report
