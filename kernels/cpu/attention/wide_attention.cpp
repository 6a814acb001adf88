// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/wide_attention.hpp"

#include <algorithm>
#include <cmath>

namespace pecia::kernels::cpu {
namespace {

TileShape shape_of(const AttentionArgs& args, int64_t tile_rows) {
  const int64_t group = args.q.size(1) / args.num_kv_heads;
  return {tile_rows * group, args.q.size(2),
          args.out.size(2),  std::min(tile_rows, queries_at_a_time(group)) * group,
          args.kv_dtype,     args.row_invariant == RowInvariant::yes};
}

}  // namespace

int64_t WideAttention::scratch_bytes(const AttentionArgs& args, int64_t tile_rows) {
  const TileShape shape = shape_of(args, tile_rows);
  return WideProducts::scratch_bytes(shape) +
         Carver::bytes_of<float>(shape.rows * shape.value_dim) +
         Carver::bytes_of<float>(shape.most_rows * block_keys) +
         2 * Carver::bytes_of<float>(shape.rows) + Carver::bytes_of<float>(block_keys) +
         KeyStage::scratch_bytes(args);
}

WideAttention::WideAttention(const AttentionArgs& args, const QueryTile& tile, int64_t kv_head,
                             Carver& scratch)
    : args_(args),
      tile_(tile),
      group_(args.q.size(1) / args.num_kv_heads),
      rows_(tile.num_rows * group_),
      value_dim_(args.out.size(2)),
      products_(shape_of(args, tile.num_rows), scratch),
      out_(scratch.take<float>(rows_ * value_dim_)),
      scores_(scratch.take<float>(shape_of(args, tile.num_rows).most_rows * block_keys)),
      maxima_(scratch.take<float>(rows_)),
      sums_(scratch.take<float>(rows_)),
      mask_(scratch.take<float>(block_keys)),
      stage_(args, kv_head, scratch) {
  const DType dtype = args.q.dtype();
  for (int64_t t = 0; t < tile.num_rows; ++t)
    products_.set_queries(static_cast<const char*>(args.q.row(tile.first_row + t)) +
                              kv_head * group_ * args.q.size(2) * size_of(dtype),
                          dtype, args.scale, t * group_, group_);
  begin();
}

void WideAttention::begin() {
  std::fill_n(out_, rows_ * value_dim_, 0.0f);
  std::fill_n(maxima_, rows_, empty_lse);
  std::fill_n(sums_, rows_, 0.0f);
}

void WideAttention::begin_with(const Destination& result) {
  for (int64_t r = 0; r < rows_; ++r) {
    std::copy_n(result.row(r, group_, value_dim_), value_dim_, out_ + r * value_dim_);
    maxima_[r] = result.lse_of(r, group_);
    sums_[r] = maxima_[r] == empty_lse ? 0.0f : 1.0f;
  }
}

void WideAttention::add(const KeyBlock& block, const std::optional<KeyBlock>& next, Sight sight) {
  const StagedKeys keys = stage_.stage(block);
  products_.set_block(keys.k, keys.v, block.num_keys, stage_.bytes_between(block, next));
  const int64_t* const key_positions =
      sight == Sight::some ? stage_.find_positions(block) : nullptr;
  const int64_t step = queries_at_a_time(group_);
  for (int64_t query = 0; query < tile_.num_rows; query += step) {
    const int64_t queries = std::min(step, tile_.num_rows - query);
    const auto positions = args_.query_positions.subspan(tile_.first_row + query, queries);
    int64_t num_keys = block.num_keys;
    if (key_positions != nullptr)
      num_keys = keys_up_to_last_seen(key_positions, num_keys,
                                      *std::max_element(positions.begin(), positions.end()));
    if (num_keys == 0) continue;
    const TileRows rows{query * group_, queries * group_};
    const ScoreBlock scores{scores_, block_keys, rows.count, num_keys};
    float* const out = out_ + rows.first * value_dim_;
    products_.multiply_keys(rows, num_keys, scores_);
    if (keys.k_scales) scale_columns(scores, keys.k_scales);
    if (key_positions != nullptr)
      mask_scores(scores, group_, positions.data(), key_positions, args_.window, mask_);
    products_.add_values(scores,
                         {maxima_ + rows.first, sums_ + rows.first, out, value_dim_, value_dim_},
                         keys.v_scales);
  }
}

void WideAttention::write(const Destination& to) const {
  for (int64_t r = 0; r < rows_; ++r) {
    const bool empty = sums_[r] == 0.0f;
    scale_row(out_ + r * value_dim_, empty ? 0.0f : 1.0f / sums_[r], value_dim_,
              to.row(r, group_, value_dim_));
    to.lse_of(r, group_) = empty ? empty_lse : maxima_[r] + std::log(sums_[r]);
  }
}

}  // namespace pecia::kernels::cpu
