// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How long an op takes on a rank of a described cluster (a roofline).

#include "kernels/phantom/phantom.hpp"
#include "lib/machines/cluster.hpp"

namespace pecia::machines {

/// Seconds of an op: the longer of computing and reading and writing, and the overhead of an op.
///
///     max(FLOPs / (peak · share of its size), bytes / (memory_gbs · share of copies)) + op_us
///
/// The peak is that of the operands' type. Operands of a type without a peak are widened, from fp8
/// to bf16 to fp32, and fp16 counts as bf16; where nothing wider has a peak, the next narrower one
/// counts.
double op_seconds(const kernels::OpWork& op, const Cluster& cluster);

/// Seconds of copying `bytes` within a rank's memory, which reads and writes them.
double copy_seconds(double bytes, const Cluster& cluster);

}  // namespace pecia::machines
