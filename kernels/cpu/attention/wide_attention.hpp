// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One task of attention with products in fp32. Its rows stay rows of matrices, and some of them at a
/// time meet a block of keys.

#include "kernels/cpu/attention/attention_task.hpp"
#include "kernels/cpu/attention/wide_products.hpp"

namespace pecia::kernels::cpu {

class WideAttention {
 public:
  static int64_t scratch_bytes(const AttentionArgs& args, int64_t tile_rows);
  WideAttention(const AttentionArgs& args, const QueryTile& tile, int64_t kv_head, Carver& scratch);

  /// Begins with no keys.
  void begin();
  /// Begins with a result over other keys, as `write` writes it.
  void begin_with(const Destination& result);
  /// `next` is read after the block, and is asked for meanwhile.
  void add(const KeyBlock& block, const std::optional<KeyBlock>& next, Sight sight);
  void write(const Destination& to) const;

 private:
  const AttentionArgs& args_;
  const QueryTile& tile_;
  const int64_t group_, rows_, value_dim_;
  WideProducts products_;
  float* const out_;     ///< [rows, value_dim], to be divided by sums
  float* const scores_;  ///< [rows at a time, block_keys]
  float* const maxima_;  ///< [rows]
  float* const sums_;    ///< [rows]
  float* const mask_;    ///< [block_keys]
  KeyStage stage_;
};

}  // namespace pecia::kernels::cpu
