// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Tells which heads a rank has where weights, or keys and values, are cut by heads.
///
/// The KV cache is cut over SP × TP ranks so that it serves two configurations at once: SP = s with
/// TP = t, and TP = s·t alone. Rank (i, j) (SP index i, TP index j) has shard j·s + i of s·t, which
/// lies inside shard j of t. Source: Shift Parallelism, KV-cache invariance.
///
///     s 3, t 2, 6 heads     ranks (0,0) (0,1) (1,0) (1,1) (2,0) (2,1) have heads 0 3 1 4 2 5

#include <cstdint>

namespace pecia::parallel {

/// Heads [begin, end).
struct HeadRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const HeadRange&) const = default;
};

/// Query heads, and the KV heads that they read.
struct HeadShard {
  HeadRange q, kv;
  bool operator==(const HeadShard&) const = default;
};

/// Tells whether heads can be cut into `count` equal shards. The query heads must divide evenly.
/// The KV heads must divide evenly, too. If there are more shards than KV heads, each KV head must
/// be needed by the same number of shards.
bool can_shard_heads(int64_t num_heads, int64_t num_kv_heads, int count);

/// Returns shard `index` of `count`. can_shard_heads must hold.
HeadShard head_shard(int64_t num_heads, int64_t num_kv_heads, int count, int index);

/// Returns the shard of the KV cache that rank (sp_index, tp_index) of SP × TP has.
constexpr int kv_shard(int sp, int sp_index, int tp_index) {
  return tp_index * sp + sp_index;
}

}  // namespace pecia::parallel
