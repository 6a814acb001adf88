// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the host of a rank does for a pass beside its ops.

namespace pecia::execute {

/// Microseconds in which this host turns a plan into calls of ops, for a decode step of two layers:
/// a phantom of a rank executes such steps, and the shortest counts. So it is step_us of a cluster
/// file of this machine. It takes some milliseconds.
double measure_step_us();

}  // namespace pecia::execute
