// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The sizes of the ops that describe a machine (described_cluster.hpp).

#include <vector>

#include "lib/settle/measure/calibration.hpp"

namespace pecia::measure {

struct OpSizes {
  /// What lies further back than this is in memory: bytes of the caches of a rank's threads, or more
  /// than a GPU caches. A rank's measurement holds some ten times as many bytes.
  int64_t cache_bytes;
  /// Products along each axis, and the sizes along the axes that are not measured just then.
  std::vector<int64_t> rows, depths, widths;
  int64_t usual_rows, usual_depth, usual_width;
  AttentionShape attention;
  std::vector<int64_t> attention_rows, attention_depths;
  AttentionShape stream;  ///< one query of these heads reads keys and values, and computes little
  std::vector<int64_t> stream_bytes;
  std::vector<int64_t> weights_bytes;  ///< of products of one row with the usual depth
  std::vector<int64_t> copies_bytes;

  int64_t usual_weights_bytes() const { return usual_depth * usual_width * size_of(DType::bf16); }
};

/// For the caches of a rank's threads. `keys`: the type that products take.
OpSizes cpu_op_sizes(int64_t cache_bytes, DType keys);

/// For GPUs with caches of up to 64 MiB. They hold less than 1 GiB of the GPU's memory.
OpSizes gpu_op_sizes();

}  // namespace pecia::measure
