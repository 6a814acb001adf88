// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Which heads a rank has where weights or keys and values are cut by heads.
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

/// Whether heads can be cut into `count` equal shards: query heads evenly, KV heads evenly or,
/// where there are more shards than KV heads, each needed by the same number of shards.
bool can_shard_heads(int64_t num_heads, int64_t num_kv_heads, int count);

/// Shard `index` of `count`; can_shard_heads must hold.
HeadShard head_shard(int64_t num_heads, int64_t num_kv_heads, int count, int index);

/// The shard of the KV cache that rank (sp_index, tp_index) has among SP × TP.
constexpr int kv_shard(int sp, int sp_index, int tp_index) {
  return tp_index * sp + sp_index;
}

}  // namespace pecia::parallel
