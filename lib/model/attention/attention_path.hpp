// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One way in which rows attend the keys of all ranks of a team. The ways differ in what travels:
///
///     PassKv      keys, round the ring
///     PassQ       queries, round the ring; results return to the ranks of their rows
///     BroadcastQ  queries, straight to the ranks with keys that they see; results return
///     Halo        keys, straight to the ranks that see them through a window
///     Levels      tokens, to the ranks that attend them at a level of sparse attention
///     HeadLevels  no tokens: the ranks have other heads, and each attends all levels by itself
///     Invariant   keys or queries; results are merged along a fixed tree
///
/// Attention (attention.hpp) gives each layer of a pass one of them.

#include <span>

#include "lib/model/attention/attention_steps.hpp"
#include "lib/model/attention/pass_rows.hpp"

namespace pecia::attention {

/// What a path allows in the pass that has begun.
struct PathTraits {
  /// All rows are stored as they come, so that one op may rotate and store them.
  bool stores_all_rows = false;
  /// Each row's result is that of one call, so that `out` may be of a type that
  /// kernels::AttentionArgs::out takes.
  bool attends_once = false;
  /// The type that queries may have besides fp32, and have with less work. Where queries travel, it
  /// is the type in which they do, or fp32.
  DType query_type = DType::fp32;
};

/// A layer's rows at this rank, dense, in the order of PassRows::positions: q [rows, num_heads,
/// head_dim], of fp32 or PathTraits::query_type; k and v [rows, num_kv_heads, head_dim], fp32. v is
/// absent where values are the beginnings of keys.
struct LayerRows {
  TensorView q, k, v;
};

class AttentionPath {
 public:
  AttentionPath() = default;
  AttentionPath(const AttentionPath&) = delete;
  AttentionPath& operator=(const AttentionPath&) = delete;
  virtual ~AttentionPath() = default;

  /// Plans the layers of a pass that have these sliding windows (0: none), each window given once.
  /// `rows` must outlive the pass. AttentionSteps::begin_pass comes before. Nothing is sent.
  virtual void begin_pass(const PassRows& rows, std::span<const kernels::Window> windows) = 0;

  /// Attends a layer's queries to all keys that they see, on all ranks of the ring. The keys of
  /// PassRows::stored are in the cache already. `to` has this rank's rows: the call fills it, but
  /// for attention sinks. Collective over the team's ring. Throws what its transfers throw.
  virtual void run(int64_t layer, const LayerRows& x, const Partial& to) = 0;

  virtual PathTraits traits() const = 0;

  /// Bytes that this rank would send in a layer of the pass that has no window, and keys of this
  /// shape.
  virtual int64_t bytes_without_window(const PassRows&, const KvShape&) const { return 0; }
};

}  // namespace pecia::attention
