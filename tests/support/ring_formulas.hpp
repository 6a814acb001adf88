// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What attention sends in one layer of a pass by the formulas of the papers, from the pass and the
/// map alone: an oracle for what is really sent.
/// Sources: Context Parallelism for Scalable Million-Token Inference, Table 2 (pass-KV, pass-Q);
/// LoongServe (queries to the instances that hold keys).

#include "lib/ranks/parallel/kv_map.hpp"

namespace pecia::test {

/// One rank's share of the heads, and what its cache has of a token.
struct RingShape {
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int64_t kv_bytes_per_token = 0;  ///< K and V in one layer
  bool layout_invariant = false;   ///< Invariant: queries go straight to all instances
  kernels::Window window = {};     ///< of the layer
  int64_t recent_block = 0;        ///< tokens beyond the window go in such blocks; 0: they are kept
};

/// Bytes that the rank of an instance sends; `map`: with the pass appended.
int64_t ring_bytes(const std::vector<parallel::TeamPass>& teams, const parallel::KvMap& map,
                   int instance, const RingShape& shape);
/// The same where keys are placed; `before`: the map without the pass.
int64_t ring_bytes(const std::vector<parallel::TeamPass>& teams, const parallel::KvMap& map,
                   const parallel::KvMap& before, int instance, const RingShape& shape);

}  // namespace pecia::test
