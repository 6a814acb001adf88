// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention/strip_attention.hpp"

#include <algorithm>

#include "kernels/cpu/products/bf16_native.hpp"
#include "kernels/cpu/shared/prefetch.hpp"
#include "lib/base/core/dtype.hpp"

namespace pecia::kernels::cpu {
namespace {

constexpr int64_t chunks_of_block = block_keys / chunk_keys;
constexpr int64_t chunk_elements = chunk_keys * strip_lanes;
static_assert(block_keys % chunk_keys == 0);

constexpr int64_t elements_of_line = 64 / sizeof(uint16_t);

constexpr int64_t in_whole_dims(int64_t width) {
  return (width + 31) / 32 * 32;
}

constexpr int64_t strips_of(int64_t rows) {
  return (rows + strip_lanes - 1) / strip_lanes;
}

uint32_t first_bits(int64_t count) {
  return static_cast<uint32_t>((uint64_t{1} << count) - 1);
}

uint32_t lanes_without_maximum(const float* maxima, int64_t rows) {
  uint32_t fresh = 0;
  for (int64_t lane = 0; lane < rows; ++lane)
    fresh |= static_cast<uint32_t>(maxima[lane] == no_maximum) << lane;
  return fresh;
}

/// numbers[r, i] *= scales[r]
void scale_rows_bf16(const float* scales, int64_t rows, int64_t width, uint16_t* numbers) {
  constexpr int64_t piece = 64;
  std::array<float, piece> scaled;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t first = 0; first < width; first += piece) {
      uint16_t* const at = numbers + r * width + first;
      const int64_t count = std::min(piece, width - first);
      for (int64_t i = 0; i < count; ++i) scaled[i] = scales[r] * bf16_to_float(at[i]);
      store_bf16_native(scaled.data(), count, at);
    }
}

}  // namespace

int64_t StripAttention::scratch_bytes(const AttentionArgs& args, int64_t tile_rows) {
  const int64_t rows = tile_rows * (args.q.size(1) / args.num_kv_heads);
  const int64_t lanes = strips_of(rows) * strip_lanes, dims = in_whole_dims(args.q.size(2));
  const int64_t out_dims = in_whole_dims(args.out.size(2));
  return KeyStage::scratch_bytes(args) + Carver::bytes_of<uint16_t>(lanes * dims) +
         2 * Carver::bytes_of<int64_t>(lanes) + 2 * Carver::bytes_of<float>(lanes) +
         Carver::bytes_of<float>(lanes * out_dims) + Carver::bytes_of<uint32_t>(strips_of(rows)) +
         3 * Carver::bytes_of<uint16_t>(block_keys * dims) +
         Carver::bytes_of<uint16_t>(block_keys * strip_lanes) +
         Carver::bytes_of<float>(2 * chunk_elements) + Carver::bytes_of<float>(block_keys) +
         Carver::bytes_of<Visible>(chunks_of_block);
}

StripAttention::StripAttention(const AttentionArgs& args, const QueryTile& tile, int64_t kv_head,
                               const StripKernel& kernel, Carver& scratch)
    : args_(args),
      tile_(tile),
      kernel_(kernel),
      kv_head_(kv_head),
      group_(args.q.size(1) / args.num_kv_heads),
      rows_(tile.num_rows * group_),
      width_(args.q.size(2)),
      value_width_(args.out.size(2)),
      dims_(in_whole_dims(width_)),
      out_dims_(in_whole_dims(value_width_)),
      stage_(args, kv_head, scratch),
      queries_(scratch.take<uint16_t>(num_strips() * strip_lanes * dims_)),
      positions_(scratch.take<int64_t>(num_strips() * strip_lanes)),
      reaches_(scratch.take<int64_t>(num_strips() * strip_lanes)),
      maxima_(scratch.take<float>(num_strips() * strip_lanes)),
      sums_(scratch.take<float>(num_strips() * strip_lanes)),
      out_(scratch.take<float>(num_strips() * strip_lanes * out_dims_)),
      fresh_(scratch.take<uint32_t>(num_strips())),
      keys_(scratch.take<uint16_t>(block_keys * dims_)),
      wide_(scratch.take<uint16_t>(block_keys * dims_)),
      values_(scratch.take<uint16_t>(block_keys * dims_)),
      weights_(scratch.take<uint16_t>(block_keys * strip_lanes)),
      scores_(scratch.take<float>(2 * chunk_elements)),
      scales_(scratch.take<float>(block_keys)),
      visible_(scratch.take<Visible>(chunks_of_block)) {
  set_queries();
  begin();
  kernel_.begin();
}

void StripAttention::set_queries() {
  const bool rounded = args_.q.dtype() == DType::bf16;
  uint16_t* const rows = keys_;  // [strip_lanes, dims], free until keys come
  for (int64_t strip = 0; strip < num_strips(); ++strip) {
    std::fill_n(rows, strip_lanes * dims_, uint16_t{0});
    for (int64_t lane = 0; lane < strip_lanes; ++lane) {
      const int64_t row = strip * strip_lanes + lane, query = std::min(row, rows_ - 1) / group_;
      positions_[row] = args_.query_positions[tile_.first_row + query];
      reaches_[row] = args_.window.reach(positions_[row]);
      if (row >= rows_) continue;
      const int64_t element = (kv_head_ * group_ + row % group_) * width_;
      const void* const from = args_.q.row(tile_.first_row + query);
      if (rounded)
        std::copy_n(static_cast<const uint16_t*>(from) + element, width_, rows + lane * dims_);
      else
        store_bf16_native(static_cast<const float*>(from) + element, width_, rows + lane * dims_);
    }
    kernel_.steps_for(rows_of(strip)).pack({rows, dims_, queries_ + strip * strip_lanes * dims_});
  }
}

void StripAttention::begin() {
  std::fill_n(out_, num_strips() * strip_lanes * out_dims_, 0.0f);
  std::fill_n(maxima_, num_strips() * strip_lanes, no_maximum);
  std::fill_n(sums_, num_strips() * strip_lanes, 0.0f);
  for (int64_t strip = 0; strip < num_strips(); ++strip) fresh_[strip] = first_bits(rows_of(strip));
  std::fill(maxima_ + rows_, maxima_ + num_strips() * strip_lanes, 0.0f);  // lanes without a row
}

RowsOfLanes StripAttention::places(const Destination& at, int64_t strip,
                                   const float* numbers) const {
  RowsOfLanes found{{}, rows_of(strip), value_width_, numbers};
  for (int64_t lane = 0; lane < found.count; ++lane)
    found.rows[lane] = at.row(strip * strip_lanes + lane, group_, value_width_);
  return found;
}

void StripAttention::begin_with(const Destination& result) {
  begin();
  for (int64_t strip = 0; strip < num_strips(); ++strip) {
    const StripRows rows = strip_rows(strip);
    const int64_t count = rows_of(strip);
    for (int64_t lane = 0; lane < count; ++lane) {
      const SumOfRow sum = sum_of_lse(result.lse_of(strip * strip_lanes + lane, group_));
      rows.maxima[lane] = sum.maximum, rows.sums[lane] = sum.sum;
    }
    kernel_.steps_for(count).read(rows, places(result, strip, rows.sums));
    fresh_[strip] = lanes_without_maximum(rows.maxima, count);
  }
}

StripAttention::Block StripAttention::set_block(const KeyBlock& block,
                                                const std::optional<KeyBlock>& next, Sight sight) {
  const StagedKeys staged = stage_.stage(block);
  const int64_t to_next = stage_.bytes_between(block, next), num_keys = block.num_keys;
  const int64_t num_chunks = (num_keys + chunk_keys - 1) / chunk_keys;
  const bool whole = width_ == dims_ && num_keys % chunk_keys == 0;
  const bool coded = args_.kv_dtype == DType::fp8;
  const auto* keys = reinterpret_cast<const uint16_t*>(staged.k);
  const auto* values = reinterpret_cast<const uint16_t*>(staged.v);
  int64_t ahead = to_next / static_cast<int64_t>(sizeof(uint16_t));
  if (coded) {
    fp8_to_bf16_native(reinterpret_cast<const uint8_t*>(staged.k), num_keys * width_, to_next,
                       whole ? keys_ : values_);
    fp8_to_bf16_native(reinterpret_cast<const uint8_t*>(staged.v), num_keys * width_, to_next,
                       wide_);
    scale_rows_bf16(staged.v_scales, num_keys, width_, wide_);
    keys = whole ? keys_ : values_, values = wide_, ahead = 0;
  }
  for (int64_t i = 0; ahead != 0 && i < num_keys * width_; i += elements_of_line)
    ask_for(keys + i, to_next);
  if (!whole) {
    std::fill_n(keys_, num_chunks * chunk_keys * dims_, uint16_t{0});
    for (int64_t key = 0; key < num_keys; ++key)
      std::copy_n(keys + key * width_, width_, keys_ + key * dims_);
    keys = keys_;
  }
  const float units = units_of_score(args_.scale);
  for (int64_t key = 0; key < num_chunks * chunk_keys; ++key)
    scales_[key] = key < num_keys && coded ? units * staged.k_scales[key] : units;
  for (int64_t chunk = 0; chunk < num_chunks; ++chunk)
    kernel_.pack_values({values + chunk * chunk_keys * width_,
                         std::min(chunk_keys, num_keys - chunk * chunk_keys), value_width_, width_,
                         out_dims_, values_ + chunk * chunk_keys * out_dims_, ahead});
  const bool all = sight == Sight::all && num_keys % chunk_keys == 0;
  return {keys, dims_, num_chunks, all ? nullptr : stage_.find_positions(block), num_keys};
}

StripAttention::ChunkRange StripAttention::find_seen(const Block& block, int64_t strip) {
  if (block.positions == nullptr) {
    all_visible_.fill(true);
    return {0, block.num_chunks};
  }
  const StripSteps& steps = kernel_.steps_for(rows_of(strip));
  const uint32_t lanes = first_bits(rows_of(strip));
  ChunkRange seen{block.num_chunks, 0};
  for (int64_t chunk = 0; chunk < block.num_chunks; ++chunk) {
    const int64_t first = chunk * chunk_keys;
    steps.see({positions_ + strip * strip_lanes, reaches_ + strip * strip_lanes,
               block.positions + first, std::min(chunk_keys, block.num_keys - first)},
              visible_[chunk]);
    uint32_t any = 0, every = ~uint32_t{0};
    for (const uint32_t lanes_of_key : visible_[chunk]) any |= lanes_of_key, every &= lanes_of_key;
    all_visible_[chunk] = (every & lanes) == lanes;
    if (any == 0) continue;
    seen.begin = std::min(seen.begin, chunk);
    seen.end = chunk + 1;
  }
  return seen;
}

MultiplyChunk StripAttention::keys_and_queries(const Block& block, int64_t strip, int64_t chunk,
                                               float* scores) const {
  return {block.keys + chunk * chunk_keys * block.key_stride, block.key_stride,
          queries_ + strip * strip_lanes * dims_, dims_, scores};
}

ChunkScores StripAttention::scores_of(int64_t chunk, float* scores) const {
  return {scores, scales_ + chunk * chunk_keys, all_visible_[chunk] ? nullptr : &visible_[chunk]};
}

void StripAttention::raise_fresh(const StripSteps& steps, const ChunkScores& chunk, int64_t strip) {
  std::array<float, strip_lanes> highest;
  highest.fill(no_maximum);
  const StripRows rows = strip_rows(strip);
  steps.find_highest(chunk, highest.data());
  steps.raise(highest.data(), fresh_[strip], rows);
  fresh_[strip] = lanes_without_maximum(rows.maxima, rows_of(strip));
}

void StripAttention::weigh_again(const Block& block, int64_t strip, ChunkRange chunks,
                                 uint32_t exceeding, float* sums) {
  const StripSteps& steps = kernel_.steps_for(rows_of(strip));
  const StripRows rows = strip_rows(strip);
  const int64_t weights_of_chunk =
      chunk_keys * (rows_of(strip) > half_lanes ? strip_lanes : half_lanes);
  std::array<float, strip_lanes> highest;
  highest.fill(no_maximum);
  for (const bool weigh : {false, true}) {
    for (int64_t c = chunks.begin; c < chunks.end; ++c) {
      steps.multiply(keys_and_queries(block, strip, c, scores_));
      const ChunkScores chunk = scores_of(c, scores_);
      steps.find_highest(chunk, highest.data());
      if (weigh) steps.weigh(chunk, rows.maxima, weights_ + c * weights_of_chunk, sums);
    }
    if (weigh) break;
    steps.raise(highest.data(), exceeding, rows);
    std::copy_n(rows.sums, strip_lanes, sums);
  }
}

void StripAttention::add_strip(const Block& block, int64_t strip) {
  const ChunkRange chunks = find_seen(block, strip);
  if (chunks.begin >= chunks.end) return;
  const int64_t count = rows_of(strip);
  const StripSteps& steps = kernel_.steps_for(count);
  const int64_t lanes = count > half_lanes ? strip_lanes : half_lanes;
  const StripRows rows = strip_rows(strip);
  std::array<float, strip_lanes> sums;
  uint32_t exceeding = 0;
  steps.multiply(keys_and_queries(block, strip, chunks.begin, scores_));
  for (int64_t c = chunks.begin; c < chunks.end; ++c) {
    float* const scores = scores_ + (c - chunks.begin) % 2 * chunk_elements;
    float* const coming = scores_ + (c - chunks.begin + 1) % 2 * chunk_elements;
    const ChunkScores chunk = scores_of(c, scores);
    if (fresh_[strip] != 0) raise_fresh(steps, chunk, strip);
    if (c == chunks.begin) std::copy_n(rows.sums, strip_lanes, sums.data());
    // One chunk ahead, so that no vector waits for a tile that was stored just before.
    if (c + 1 < chunks.end) steps.multiply(keys_and_queries(block, strip, c + 1, coming));
    exceeding |= steps.weigh(chunk, rows.maxima, weights_ + c * chunk_keys * lanes, sums.data());
  }
  exceeding &= first_bits(count);
  if (exceeding != 0) weigh_again(block, strip, chunks, exceeding, sums.data());
  std::copy_n(sums.data(), strip_lanes, rows.sums);
  steps.add({values_ + chunks.begin * chunk_keys * out_dims_,
             weights_ + chunks.begin * chunk_keys * lanes, chunks.end - chunks.begin, out_dims_,
             rows.out});
}

void StripAttention::add(const KeyBlock& keys, const std::optional<KeyBlock>& next, Sight sight) {
  const Block block = set_block(keys, next, sight);
  for (int64_t strip = 0; strip < num_strips(); ++strip) add_strip(block, strip);
}

void StripAttention::write(const Destination& to) const {
  for (int64_t strip = 0; strip < num_strips(); ++strip) {
    const StripRows rows = strip_rows(strip);
    const int64_t count = rows_of(strip);
    std::array<float, strip_lanes> divisors;
    for (int64_t lane = 0; lane < count; ++lane) {
      const int64_t row = strip * strip_lanes + lane;
      const SumOfRow sum{rows.maxima[lane], rows.sums[lane]};
      divisors[lane] = sum.divisor();
      to.lse_of(row, group_) = sum.lse();
    }
    kernel_.steps_for(count).write(rows, places(to, strip, divisors.data()));
  }
}

}  // namespace pecia::kernels::cpu
