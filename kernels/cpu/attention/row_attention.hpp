// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One task of attention with products in bf16 of few rows, which memory limits: keys and values are
/// read in place, for keys of bf16 or fp8, whose codes are numbers of bf16. Requires
/// has_native_bf16().

#include "kernels/api/measured_constants.hpp"
#include "kernels/cpu/attention/attention_task.hpp"

namespace pecia::kernels::cpu {

class RowAttention {
 public:
  /// More rows are faster in strips. Measured on Zen 4, keys in memory: in strips 3 and 4 rows took 2
  /// to 3 times as long, 12 rows the same.
  static MeasuredConstant most_rows;

  static int64_t scratch_bytes(const AttentionArgs& args, int64_t tile_rows);
  RowAttention(const AttentionArgs& args, const QueryTile& tile, int64_t kv_head, Carver& scratch);

  /// Begins with no keys.
  void begin();
  /// Begins with a result over other keys, as `write` writes it.
  void begin_with(const Destination& result);
  /// `next` is read after the block, and is asked for meanwhile.
  void add(const KeyBlock& block, const std::optional<KeyBlock>& next, Sight sight);
  void write(const Destination& to) const;

 private:
  /// A block's keys and values as numbers of bf16.
  struct Numbers {
    const uint16_t *keys, *values;
    const float *key_scales, *value_scales;  ///< [block_keys], or null
    int64_t ahead;                           ///< elements from a key to the key of the next block
  };

  Numbers set_block(const KeyBlock& block, const std::optional<KeyBlock>& next);
  void find_scores(const Numbers& block, int64_t num_keys);

  const AttentionArgs& args_;
  const QueryTile& tile_;
  const int64_t group_, rows_, head_dim_, value_dim_;
  KeyStage stage_;
  uint16_t* const queries_;  ///< [rows, head_dim in whole pairs], padded with 0
  float* const maxima_;      ///< [rows], in units (strip.hpp), or no_maximum
  float* const sums_;        ///< [rows]
  float* const out_;         ///< [rows, value_dim], to be divided by sums
  float* const scores_;      ///< [rows, block_keys]
  uint16_t* const weights_;  ///< [rows, block_keys]
  float* const scales_;      ///< [block_keys], from scores to units
  float* const factors_;     ///< [block_keys], of the weights
  float* const mask_;        ///< [block_keys]
  uint16_t* const wide_k_;   ///< [block_keys, head_dim], numbers of a block of codes
  uint16_t* const wide_v_;   ///< wide_k_ where values are the beginnings of keys
};

}  // namespace pecia::kernels::cpu
