// SPDX-License-Identifier: Apache-2.0
/// Replaces profiler_ranges_nvtx.cpp in a build without CUDA.

#include "lib/base/report/profiler_ranges.hpp"

namespace pecia::report {

bool has_profiler_ranges() {
  return false;
}

void begin_profiler_range(const char*) noexcept {}
void end_profiler_range() noexcept {}

}  // namespace pecia::report
