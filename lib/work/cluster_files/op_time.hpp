// SPDX-License-Identifier: Apache-2.0
#pragma once
/// How long an op takes on a rank of a described cluster (a roofline).

#include "kernels/phantom/phantom.hpp"
#include "lib/work/cluster_files/cluster.hpp"

namespace pecia::cluster_files {

/// Seconds in which an op would compute if it moved nothing, and in which it reads and writes. They
/// are the same for a product that waits for its weights, where only both together are known.
struct OpParts {
  double computing = 0, moving = 0;
};
OpParts parts_of(const kernels::OpWork& op, const Cluster& cluster);

/// Seconds of an op: the longer of computing and reading and writing, and the overhead of an op.
///
///     max(FLOPs / (peak · share of its size), bytes / (memory_gbs · share of stream or copy)) + op_us
///
/// A recurrence has a share of its own, and takes at least recurrent_row_us for each of the rows of a
/// sequence, however few its heads are. In chunks it takes at least recurrent_chunk_us for each chunk.
/// Where the cluster has shares of `weights`, a product that waits for them takes their bytes at the
/// rate of so few rows: bytes / (peak · share of its rows / rows · share of its bytes).
/// The peak is that of the operands' type. Operands of a type without a peak are widened, from fp8
/// to bf16 to fp32, and fp16 counts as bf16; where nothing wider has a peak, the next narrower one
/// counts.
/// `others`: the share of the other ranks of its server that work meanwhile, from 0 to 1. At 0 an op
/// that waits for memory (it takes less than twice the time of its bytes) is `alone` times as fast,
/// and one that computes is `alone_flops` times as fast. A product that waits for memory has the share
/// `pieces` of its rate where rows of its weights lie apart.
double op_seconds(const kernels::OpWork& op, const Cluster& cluster, double others = 1);

/// Seconds of copying `bytes` within a rank's memory, which reads and writes them.
double copy_seconds(double bytes, const Cluster& cluster, double others = 1);

}  // namespace pecia::cluster_files
