// SPDX-License-Identifier: Apache-2.0
#pragma once
/// One task of attention in strips (strip.hpp), for keys of bf16 or fp8. A block's values are packed
/// once for all strips of the tile, and its keys are read in place. Scores live 32 keys long, so
/// they stay in the first cache.

#include <span>

#include "kernels/cpu/attention/attention_task.hpp"
#include "kernels/cpu/attention/strip.hpp"

namespace pecia::kernels::cpu {

class StripAttention {
 public:
  static int64_t scratch_bytes(const AttentionArgs& args, int64_t tile_rows);
  /// The thread uses the kernel's instructions as long as this lives.
  StripAttention(const AttentionArgs& args, const QueryTile& tile, int64_t kv_head,
                 const StripKernel& kernel, Carver& scratch);
  StripAttention(const StripAttention&) = delete;
  StripAttention& operator=(const StripAttention&) = delete;
  ~StripAttention() { kernel_.end(); }

  /// Begins with no keys.
  void begin();
  /// Begins with a result over other keys, as `write` writes it.
  void begin_with(const Destination& result);
  /// `next` is read after the block, and is asked for meanwhile.
  void add(const KeyBlock& block, const std::optional<KeyBlock>& next, Sight sight);
  void write(const Destination& to) const;

 private:
  /// A block's keys where the kernel reads them.
  struct Block {
    const uint16_t* keys;
    int64_t key_stride, num_chunks;
    const int64_t* positions;  ///< null: every row sees every key
    int64_t num_keys;
  };
  struct ChunkRange {
    int64_t begin, end;
  };

  void set_queries();
  Block set_block(const KeyBlock& block, const std::optional<KeyBlock>& next, Sight sight);
  ChunkRange find_seen(const Block& block, int64_t strip);
  void add_strip(const Block& block, int64_t strip);
  void raise_fresh(const StripSteps& steps, const ChunkScores& chunk, int64_t strip);
  void weigh_again(const Block& block, int64_t strip, ChunkRange chunks, uint32_t exceeding,
                   float* sums);
  MultiplyChunk keys_and_queries(const Block& block, int64_t strip, int64_t chunk,
                                 float* scores) const;
  ChunkScores scores_of(int64_t chunk, float* scores) const;

  int64_t num_strips() const { return (rows_ + strip_lanes - 1) / strip_lanes; }
  int64_t rows_of(int64_t strip) const {
    return std::min(strip_lanes, rows_ - strip * strip_lanes);
  }
  StripRows strip_rows(int64_t strip) const {
    return {maxima_ + strip * strip_lanes, sums_ + strip * strip_lanes,
            out_ + strip * strip_lanes * out_dims_, out_dims_};
  }
  RowsOfLanes places(const Destination& at, int64_t strip, const float* numbers) const;

  const AttentionArgs& args_;
  const QueryTile& tile_;
  const StripKernel& kernel_;
  const int64_t kv_head_, group_, rows_, width_, value_width_;
  const int64_t dims_, out_dims_;  ///< head_dim and value_dim in whole units of 32
  KeyStage stage_;
  uint16_t* const queries_;  ///< [strips] of [dims / 2, lanes, 2]
  int64_t* const
      positions_;            ///< [strips, strip_lanes]; the last row's again in lanes without a row
  int64_t* const reaches_;   ///< [strips, strip_lanes]; Window::reach of these
  float* const maxima_;      ///< [strips, strip_lanes]
  float* const sums_;        ///< [strips, strip_lanes]
  float* const out_;         ///< [strips] of [out_dims, lanes], to be divided by sums
  uint32_t* const fresh_;    ///< [strips], lanes that have seen no key
  uint16_t* const keys_;     ///< [block_keys, dims], where keys cannot be read in place
  uint16_t* const wide_;     ///< [block_keys, head_dim], numbers of values of fp8
  uint16_t* const values_;   ///< [chunks, out_dims, 32]
  uint16_t* const weights_;  ///< [chunks, 16, lanes, 2]
  float* const scores_;      ///< two chunks of [32, lanes]
  float* const scales_;      ///< [block_keys], from scores to units
  Visible* const visible_;   ///< [chunks], of the strip at work
  std::array<bool, block_keys / chunk_keys> all_visible_ = {};
};

}  // namespace pecia::kernels::cpu
