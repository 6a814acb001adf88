// SPDX-License-Identifier: Apache-2.0
#include <nvtx3/nvToolsExt.h>

#include "lib/base/report/profiler_ranges.hpp"

namespace pecia::report {

bool has_profiler_ranges() {
  return true;
}

void begin_profiler_range(const char* name) noexcept {
  nvtxRangePushA(name);
}

void end_profiler_range() noexcept {
  nvtxRangePop();
}

}  // namespace pecia::report
