// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a task of attention reads and writes: a block's keys, and the result of a tile's rows.

#include <optional>

#include "kernels/cpu/attention/attention_plan.hpp"
#include "kernels/cpu/shared/workspace.hpp"

namespace pecia::kernels::cpu {

/// Where a task's result goes: rows of the call's output, or a partial to be merged.
struct Destination {
  float* out;  ///< of query t and head g of the group at t · row_stride + g · value_dim
  float* lse;  ///< … at t · lse_stride + g
  int64_t row_stride, lse_stride;

  /// Of row r of a tile: head r % group of query r / group.
  float* row(int64_t r, int64_t group, int64_t value_dim) const {
    return out + r / group * row_stride + r % group * value_dim;
  }
  float& lse_of(int64_t r, int64_t group) const { return lse[r / group * lse_stride + r % group]; }
};

/// Keys and values of a block where the products can read them: in place, or copied together. Values
/// are head_dim apart, as keys are.
struct StagedKeys {
  const char *k, *v;                 ///< equal where values are the beginnings of keys
  const float *k_scales, *v_scales;  ///< [keys], or null
};

/// The keys of one KV head, block by block.
class KeyStage {
 public:
  static int64_t scratch_bytes(const AttentionArgs& args);
  KeyStage(const AttentionArgs& args, int64_t kv_head, Carver& scratch);

  StagedKeys stage(const KeyBlock& block);
  /// Finds the positions of the block's keys. They last until the next call.
  const int64_t* find_positions(const KeyBlock& block);
  /// Returns the bytes from a block to the one that is read next. Where nothing is known to follow,
  /// or in another place than where a copy was made, the keys after the block's may.
  int64_t bytes_between(const KeyBlock& block, const std::optional<KeyBlock>& next) const;

 private:
  /// Of k, v and their scales.
  int64_t element_of(const KeyRun& run, int64_t offset) const {
    return run.offset + kv_head_ * run.head_stride + offset * head_dim_;
  }

  const AttentionArgs& args_;
  const int64_t kv_head_, head_dim_, row_bytes_;
  char* const k_;
  float* const k_scales_;
  char* const v_;  ///< k_ where values are the beginnings of keys
  float* const v_scales_;
  int64_t* const positions_;
};

/// Returns how many of a block's keys there are up to the last one that a query at `last` or before
/// it sees, in whole chunks of 32. The others weigh 0.
int64_t keys_up_to_last_seen(const int64_t* positions, int64_t num_keys, int64_t last);

}  // namespace pecia::kernels::cpu
