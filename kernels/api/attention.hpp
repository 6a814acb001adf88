// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <limits>
#include <span>

#include "kernels/api/row_invariant.hpp"
#include "kernels/api/window.hpp"
#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

/// Where the keys and values of a call lie: a layer of a cache, or a message.
struct StoredKeys {
  /// Equal where a value is the beginning of its key (latent attention).
  const void *k = nullptr, *v = nullptr;
  /// The scales of fp8 keys and values, one for every head_dim elements. They are null for other
  /// types.
  const float *k_scales = nullptr, *v_scales = nullptr;

  constexpr bool values_in_keys() const { return k == v; }
};

/// Some keys of one sequence, with their values. They lie next to each other in memory and stand at
/// positions in equal steps. They may be a prompt's chunk (stride 1), or generated tokens that were
/// dealt to several ranks.
struct KeyRun {
  /// Key s of KV head g begins at element offset + g · head_stride + s · head_dim of k. Its value
  /// begins there in v, and may be shorter (AttentionArgs::out). In fp8 offset and head_stride are multiples of head_dim, and the index of
  /// the scale is the element divided by head_dim.
  int64_t offset;
  int64_t head_stride;  ///< elements from one KV head to the next
  int64_t num_keys;     ///< may be 0
  int64_t position;     ///< global position of key 0
  int64_t stride = 1;   ///< key s stands at position + s · stride; at least 1

  constexpr int64_t position_of(int64_t key) const { return position + key * stride; }
  bool operator==(const KeyRun&) const = default;
};

/// The query rows of one sequence, and all the keys they may see in this call.
struct AttentionItem {
  int64_t first_row, num_rows;  ///< rows of q, out and lse; not shared, unless items are merged
  int64_t first_run, num_runs;  ///< entries of AttentionArgs::runs
};

/// What an attention call begins with: no keys, or a result over other keys of the same rows.
enum class AttentionFrom { nothing, result };

/// Attention of query rows to one part of their keys. The results of several parts can be merged.
///
///     scores[t,h,s] = q[t,h] · k[s,g] · scale        g = h / (num_heads / num_kv_heads)
///     lse[t,h]      = log Σ_s exp(scores)            natural log, fp32
///     out[t,h]      = Σ_s exp(scores − lse) v[s,g]   accumulated in fp32, of the first value_dim
/// A row that sees no key has lse −inf and out 0.
///
/// k and v are the stored numbers. In fp8 these are codes times their scales.
///
/// Row t sees key s of its own item when key position ≤ query position and the window reaches it.
/// Positions are global. Neither rows nor runs need be in order.
///
/// Rows that are in no item are not written. The op polls the stream between tiles.
struct AttentionArgs {
  /// [rows, num_heads, head_dim], dense; fp32 or Backend::query_type. Both give the same bits.
  TensorView q;
  std::span<const int64_t> query_positions;  ///< [rows]
  std::span<const AttentionItem> items;
  std::span<const KeyRun> runs;  ///< runs of `keys`
  StoredKeys keys;
  DType kv_dtype;        ///< fp32, bf16, fp16 or fp8
  int64_t num_kv_heads;  ///< divides num_heads
  float scale;           ///< usually 1/sqrt(head_dim)
  Window window = {};
  /// [rows, num_heads, value_dim], dense, written, with value_dim ≤ head_dim: a value is the first
  /// value_dim of the head_dim numbers that are stored for it. fp32, or on backends with
  /// gains_by_fewer_ops() bf16 or fp16, rounded once to the bits of a result in fp32 that is rounded afterwards.
  TensorView out;
  TensorView lse;  ///< [rows, num_heads] fp32, dense, written
  /// With `yes`, a row's bits follow only from its query, its position and the keys of its item, in
  /// their order. They depend neither on how the keys are cut into runs nor on later keys that the
  /// row does not see.
  RowInvariant row_invariant = RowInvariant::no;
  /// If it is more than 1, a power of two, items [i · merged, (i + 1) · merged) have the same rows.
  /// Their results are merged as the leaves of a complete binary tree, each right one into the left
  /// one as MergeArgs says, and only the whole is written:
  ///
  ///     merged 4     (item 0 ← item 1) ← (item 2 ← item 3)
  ///
  /// It is only for backends with merges_attention(), and with RowInvariant::yes.
  int merged = 1;
  /// With `result`, out and lse hold a result over other keys. They become the result over those
  /// and the call's keys, which is what MergeArgs says, up to rounding. A row that sees no key keeps
  /// its bits. It is only for backends with continues_attention(), with out in fp32 and
  /// RowInvariant::no (so nothing is merged).
  AttentionFrom from = AttentionFrom::nothing;
};

/// Counts the bytes of device memory that a backend keeps for each row that it leaves to a library
/// at once (Backend::attention_library). They hold a row of q and a row of out in the keys' type,
/// which has 16 bits, lse, and a row of out in fp32 where results are added up before they are
/// rounded. Where q comes in the keys' type, its row is the caller's.
inline constexpr int64_t library_bytes_per_row(int64_t num_heads, int64_t head_dim) {
  return num_heads *
         (head_dim * (2 * size_of(DType::bf16) + size_of(DType::fp32)) + size_of(DType::fp32));
}

/// The device memory that a backend has, at most, for keys and values of fp8 that it widens for a
/// library.
inline constexpr int64_t library_key_bytes = int64_t{128} << 20;

inline constexpr float empty_lse = -std::numeric_limits<float>::infinity();

}  // namespace pecia::kernels
