// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What this process has used of the machine.

#include <cstdint>

namespace pecia::report {

/// Largest resident memory of this process so far (VmHWM of /proc/self/status). Mapped checkpoint
/// pages count on every rank that touched them, so the sum over a host's ranks may exceed its
/// memory.
int64_t peak_rss_bytes();

/// Processor time of all its threads so far, waiting loops included.
double cpu_seconds();

}  // namespace pecia::report
