// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What this process has used of the machine so far.

#include <cstdint>

namespace pecia::report {

/// Largest resident memory of this process so far (VmHWM of /proc/self/status). Mapped checkpoint
/// pages count on every rank that touched them, so the sum over the ranks of a host may exceed its
/// memory.
int64_t peak_rss_bytes();

/// Processor time of all threads of this process so far, including busy waiting.
double cpu_seconds();

}  // namespace pecia::report
