// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/row_attention.hpp"

#include <algorithm>
#include <limits>

#include "kernels/cpu/attention/row_weights.hpp"
#include "kernels/cpu/attention/softmax.hpp"
#include "kernels/cpu/attention/strip.hpp"
#include "kernels/cpu/products/bf16_few_rows.hpp"
#include "kernels/cpu/products/bf16_native.hpp"
#include "kernels/cpu/products/lane_dot.hpp"
#include "lib/base/core/dtype.hpp"

namespace pecia::kernels::cpu {
namespace {

constexpr int64_t in_whole_pairs(int64_t elements) {
  return (elements + 1) / 2 * 2;
}

int64_t coded_elements(const AttentionArgs& args) {
  return args.kv_dtype == DType::fp8 ? block_keys * args.q.size(2) : 0;
}

}  // namespace

MeasuredConstant RowAttention::most_rows("attention.most_few_rows", 28, {14, 56});

int64_t RowAttention::scratch_bytes(const AttentionArgs& args, int64_t tile_rows) {
  const int64_t head_dim = args.q.size(2);
  const int64_t rows =
      std::min<int64_t>(most_rows, tile_rows * (args.q.size(1) / args.num_kv_heads));
  return KeyStage::scratch_bytes(args) +
         Carver::bytes_of<uint16_t>(rows * in_whole_pairs(head_dim)) +
         2 * Carver::bytes_of<float>(rows) + Carver::bytes_of<float>(rows * args.out.size(2)) +
         Carver::bytes_of<float>(rows * block_keys) +
         Carver::bytes_of<uint16_t>(rows * block_keys) + 3 * Carver::bytes_of<float>(block_keys) +
         2 * Carver::bytes_of<uint16_t>(coded_elements(args));
}

RowAttention::RowAttention(const AttentionArgs& args, const QueryTile& tile, int64_t kv_head,
                           Carver& scratch)
    : args_(args),
      tile_(tile),
      group_(args.q.size(1) / args.num_kv_heads),
      rows_(tile.num_rows * group_),
      head_dim_(args.q.size(2)),
      value_dim_(args.out.size(2)),
      stage_(args, kv_head, scratch),
      queries_(scratch.take<uint16_t>(rows_ * in_whole_pairs(head_dim_))),
      maxima_(scratch.take<float>(rows_)),
      sums_(scratch.take<float>(rows_)),
      out_(scratch.take<float>(rows_ * value_dim_)),
      scores_(scratch.take<float>(rows_ * block_keys)),
      weights_(scratch.take<uint16_t>(rows_ * block_keys)),
      scales_(scratch.take<float>(block_keys)),
      factors_(scratch.take<float>(block_keys)),
      mask_(scratch.take<float>(block_keys)),
      wide_k_(scratch.take<uint16_t>(coded_elements(args))),
      wide_v_(args.keys.values_in_keys() ? wide_k_ : scratch.take<uint16_t>(coded_elements(args))) {
  for (int64_t row = 0; row < rows_; ++row) {
    uint16_t* const to = queries_ + row * in_whole_pairs(head_dim_);
    const void* const from = args.q.row(tile.first_row + row / group_);
    const int64_t element = (kv_head * group_ + row % group_) * head_dim_;
    to[in_whole_pairs(head_dim_) - 1] = 0;
    if (args.q.dtype() == DType::bf16)
      std::copy_n(static_cast<const uint16_t*>(from) + element, head_dim_, to);
    else
      store_bf16_native(static_cast<const float*>(from) + element, head_dim_, to);
  }
  std::fill_n(scales_, block_keys, units_of_score(args.scale));
  begin();
}

void RowAttention::begin() {
  std::fill_n(out_, rows_ * value_dim_, 0.0f);
  std::fill_n(maxima_, rows_, no_maximum);
  std::fill_n(sums_, rows_, 0.0f);
}

void RowAttention::begin_with(const Destination& result) {
  for (int64_t row = 0; row < rows_; ++row) {
    const SumOfRow sum = sum_of_lse(result.lse_of(row, group_));
    maxima_[row] = sum.maximum, sums_[row] = sum.sum;
    scale_row(result.row(row, group_, value_dim_), sum.sum, value_dim_, out_ + row * value_dim_);
  }
}

RowAttention::Numbers RowAttention::set_block(const KeyBlock& block,
                                              const std::optional<KeyBlock>& next) {
  const StagedKeys keys = stage_.stage(block);
  const int64_t to_next = stage_.bytes_between(block, next);
  if (args_.kv_dtype != DType::fp8)
    return {reinterpret_cast<const uint16_t*>(keys.k), reinterpret_cast<const uint16_t*>(keys.v),
            nullptr, nullptr, to_next / static_cast<int64_t>(sizeof(uint16_t))};
  const int64_t count = block.num_keys * head_dim_;
  fp8_to_bf16_native(reinterpret_cast<const uint8_t*>(keys.k), count, to_next, wide_k_);
  if (wide_v_ != wide_k_)
    fp8_to_bf16_native(reinterpret_cast<const uint8_t*>(keys.v), count, to_next, wide_v_);
  return {wide_k_, wide_v_, keys.k_scales, keys.v_scales, head_dim_};
}

void RowAttention::find_scores(const Numbers& block, int64_t num_keys) {
  const bool invariant = args_.row_invariant == RowInvariant::yes;
  (invariant ? dot_bf16 : lane_dot_bf16)({.a = queries_,
                                          .a_stride = in_whole_pairs(head_dim_),
                                          .b = block.keys,
                                          .b_stride = head_dim_,
                                          .c = scores_,
                                          .c_stride = block_keys,
                                          .rows = rows_,
                                          .columns = num_keys,
                                          .depth = head_dim_,
                                          .accumulate = false,
                                          .ahead = block.ahead});
}

void RowAttention::add(const KeyBlock& keys, const std::optional<KeyBlock>& next, Sight sight) {
  const Numbers block = set_block(keys, next);
  const auto queries = args_.query_positions.subspan(tile_.first_row, tile_.num_rows);
  const int64_t* positions = sight == Sight::some ? stage_.find_positions(keys) : nullptr;
  int64_t num_keys = keys.num_keys;
  if (positions != nullptr)
    num_keys = keys_up_to_last_seen(positions, num_keys, tile_.max_position);
  if (num_keys == 0) return;
  const int64_t in_chunks = (num_keys + chunk_keys - 1) / chunk_keys * chunk_keys;
  find_scores(block, num_keys);
  if (positions != nullptr)
    mask_scores({scores_, block_keys, rows_, num_keys}, group_, queries.data(), positions,
                args_.window, mask_);
  if (block.key_scales != nullptr) {
    scale_row(block.key_scales, units_of_score(args_.scale), num_keys, scales_);
    std::copy_n(block.value_scales, num_keys, factors_);
    std::fill(factors_ + num_keys, factors_ + in_chunks, 0.0f);
  }
  for (int64_t row = 0; row < rows_; ++row) {
    float* const scores = scores_ + row * block_keys;
    std::fill(scores + num_keys, scores + in_chunks, -std::numeric_limits<float>::infinity());
    weigh_row({scores, scales_, in_chunks},
              {maxima_ + row, sums_ + row, out_ + row * value_dim_, value_dim_},
              weights_ + row * block_keys);
  }
  const WeightRows weights{weights_, block_keys, rows_, in_chunks};
  add_weights(weights, sums_);
  if (block.value_scales != nullptr) multiply_weights(weights, factors_);
  add_rows_bf16({.a = weights_,
                 .a_stride = block_keys,
                 .b = block.values,
                 .b_stride = head_dim_,
                 .c = out_,
                 .c_stride = value_dim_,
                 .rows = rows_,
                 .columns = value_dim_,
                 .depth = num_keys,
                 .ahead = block.ahead});
}

void RowAttention::write(const Destination& to) const {
  for (int64_t row = 0; row < rows_; ++row) {
    const SumOfRow sum{maxima_[row], sums_[row]};
    const float* const from = out_ + row * value_dim_;
    std::transform(from, from + value_dim_, to.row(row, group_, value_dim_),
                   [divisor = sum.divisor()](float x) { return x / divisor; });
    to.lse_of(row, group_) = sum.lse();
  }
}

}  // namespace pecia::kernels::cpu
