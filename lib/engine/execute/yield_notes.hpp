// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The journal of memory on demand (schedule/yields.hpp) in the trace.

#include <cstdint>

#include "lib/base/report/spans.hpp"
#include "lib/engine/schedule/scheduler.hpp"

namespace pecia::execute {

/// Notes what left the cache, came back or moved before the pass that was just planned, and draws how
/// many sequences are in the cache and outside. Does nothing where memory is not on demand.
void note_yields(schedule::Scheduler& scheduler, int64_t pass, report::Recorder& recorder);

}  // namespace pecia::execute
