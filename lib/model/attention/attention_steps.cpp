// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/attention_steps.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace pecia::attention {

using report::Kind;
using report::ScopedSpan;

AttentionSteps::AttentionSteps(const Compute& compute, KvCache& cache, int64_t num_heads,
                               std::vector<kernels::Window> windows,
                               kernels::RowInvariant row_invariant, std::optional<float> scale,
                               DType wire)
    : compute_(compute),
      cache_(cache),
      num_heads_(num_heads),
      windows_(std::move(windows)),
      window_kinds_(windows_),
      row_invariant_(row_invariant),
      scale_(scale),
      wire_(wire),
      sink_part_(compute),
      messages_(compute, cache),
      rounded_q_(compute.buffer()),
      part_(compute),
      tile_part_(compute),
      latents_(compute.buffer()),
      expanded_k_(compute.buffer()),
      expanded_v_(compute.buffer()),
      lse_(compute.buffer()) {
  PECIA_CHECK(std::ssize(windows_) == cache.layers(), "{} windows for {} layers", windows_.size(),
              cache.layers());
  std::sort(window_kinds_.begin(), window_kinds_.end());
  window_kinds_.erase(std::unique(window_kinds_.begin(), window_kinds_.end()), window_kinds_.end());
  for (const kernels::Window window : window_kinds_)
    PECIA_CHECK(kinds({&window, 1}).size() == 1, "layers with a window of {} have {} shapes",
                window.tokens, kinds({&window, 1}).size());
}

std::vector<int> AttentionSteps::kinds(std::span<const kernels::Window> windows) const {
  std::vector<int> found;
  for (int64_t layer = 0; layer < std::ssize(windows_); ++layer)
    if (std::ranges::find(windows, windows_[layer]) != windows.end() &&
        std::ranges::find(found, cache_.kind(layer)) == found.end())
      found.push_back(cache_.kind(layer));
  return found;
}

int AttentionSteps::kind_of_window(kernels::Window window) const {
  const auto found = std::ranges::find(windows_, window);
  PECIA_CHECK(found != windows_.end(), "no layer has a window of {}", window.tokens);
  return cache_.kind(found - windows_.begin());
}

float AttentionSteps::scale() const {
  return scale_.value_or(1.0f / std::sqrt(static_cast<float>(head_dim())));
}

DType AttentionSteps::query_type() const {
  const auto of = [&](const LayerKind& kind) {
    return compute_.backend.query_type(kind.shape.dtype,
                                       expanded_ ? expanded_->query_dim() : kind.shape.head_dim);
  };
  const DType first = of(cache_.kinds().front());
  const bool alike =
      std::ranges::all_of(cache_.kinds(), [&](const LayerKind& kind) { return of(kind) == first; });
  return alike ? first : DType::fp32;
}

void AttentionSteps::begin_pass(comm::Communicator& ring,
                                const std::optional<parallel::LatentHead>& expanded) {
  ring_ = &ring;
  expanded_ = expanded;
  tiles_.clear();
  messages_.begin_pass(ring);
  while (std::ssize(home_) < ring.size())
    away_.emplace_back(compute_), home_.emplace_back(compute_),
        leaving_.push_back(compute_.buffer());
}

Partial AttentionSteps::partial(Buffers& buffers, int64_t rows) const {
  return {outputs(buffers.out, rows, DType::fp32), lse(buffers.lse, rows)};
}

Partial AttentionSteps::coming(Buffers& buffers, int64_t rows) const {
  return {outputs(buffers.out, rows, wire_), lse(buffers.lse, rows)};
}

void AttentionSteps::count_flops(AttentionCall& call,
                                 const std::vector<parallel::GlobalRange>& rows,
                                 const std::vector<parallel::StridedRange>& keys) const {
  for (const kernels::Window window : window_kinds_) {
    int64_t pairs = 0;
    for (const parallel::GlobalRange& range : rows)
      pairs += parallel::count_seen(range, keys, window);
    const KvShape& shape = kind(kind_of_window(window)).shape;
    const int64_t of_heads = num_heads_ * (query_dim(shape) + value_dim(shape));
    call.flops[window] += 2.0 * static_cast<double>(of_heads) * static_cast<double>(pairs);
  }
}

void AttentionSteps::add_runs(std::vector<kernels::KeyRun>& runs,
                              const std::vector<parallel::StridedRange>& positions,
                              const std::vector<parallel::SlotRange>& slots, const KvShape& shape,
                              int64_t offset, int64_t head_stride) {
  for (const auto& [slot, range] : parallel::stretches(positions, slots))
    runs.push_back(
        {offset + slot * shape.head_dim, head_stride, range.count, range.begin, range.stride});
}

void AttentionSteps::store(int64_t layer, const TensorView& k, const TensorView& v,
                           std::span<const int64_t> slots) {
  const ScopedSpan span(compute_.recorder, "kv_store", Kind::compute,
                        k.rows() * cache_.shape(layer).layer_bytes_per_token());
  const auto put = [&](const TensorView& x, const KvCache::Stored& to) {
    compute_.backend.kv_store({x, slots, to.vectors, to.scales}, compute_.stream);
  };
  put(k, cache_.k(layer));
  if (cache_.shape(layer).stores_values()) put(v, cache_.v(layer));
}

void AttentionSteps::rotate_and_store(int64_t layer, kernels::RotateAndStoreArgs heads,
                                      std::span<const int64_t> slots) {
  const ScopedSpan span(compute_.recorder, "rotate_and_store", Kind::compute,
                        heads.k.rows() * cache_.shape(layer).layer_bytes_per_token());
  const KvCache::Stored k = cache_.k(layer), v = cache_.v(layer);
  heads.slots = slots;
  heads.keys = {k.vectors, k.scales}, heads.values = {v.vectors, v.scales};
  compute_.backend.rotate_and_store(heads, compute_.stream);
}

void AttentionSteps::attend(int64_t layer, const AttentionCall& call, const TensorView& q,
                            const kernels::StoredKeys& keys, const Partial& to) {
  attend(layer, call, q, keys, to, kernels::AttentionFrom::nothing);
}

void AttentionSteps::attend_more(int64_t layer, const AttentionCall& call, const TensorView& q,
                                 const kernels::StoredKeys& keys, const Partial& to) {
  if (compute_.backend.continues_attention())
    return attend(layer, call, q, keys, to, kernels::AttentionFrom::result);
  const Partial part = partial(part_, q.rows());
  attend(layer, call, q, keys, part);
  merge(part, to);
}

/// Rows of all heads are stored as rows of one head of a cache.
TensorView AttentionSteps::queries_of_calls(const TensorView& q) {
  const DType dtype = query_type();
  if (!compute_.backend.continues_attention() || dtype == q.dtype()) return q;
  const int64_t rows = q.rows(), width = q.row_elements();
  const ScopedSpan span(compute_.recorder, "round_queries", Kind::compute,
                        rows * width * size_of(dtype));
  const TensorView rounded = rounded_q_.tensor(dtype, {rows, num_heads_, query_dim()});
  row_places_.resize(rows);
  std::iota(row_places_.begin(), row_places_.end(), 0);
  compute_.backend.kv_store(
      {q.reshape({rows, 1, width}), row_places_, rounded.reshape({1, rows, width})},
      compute_.stream);
  return rounded;
}

void AttentionSteps::attend(int64_t layer, const AttentionCall& call, const TensorView& q,
                            const kernels::StoredKeys& keys, const Partial& to,
                            kernels::AttentionFrom from) {
  if (expanded_) return attend_expanded(layer, call, q, keys, to, from);
  attend_stored(layer, call, q, {keys, cache_.shape(layer).num_kv_heads}, to, from);
}

void AttentionSteps::attend_stored(int64_t layer, const AttentionCall& call, const TensorView& q,
                                   const StoredHeads& stored, const Partial& to,
                                   kernels::AttentionFrom from) {
  const kernels::Window window = windows_[layer];
  const auto flops = call.flops.find(window);
  const ScopedSpan span(compute_.recorder, "attention", Kind::compute, 0,
                        flops == call.flops.end() ? 0 : flops->second);
  compute_.backend.attention({.q = q,
                              .query_positions = call.positions,
                              .items = call.items,
                              .runs = call.runs,
                              .keys = stored.keys,
                              .kv_dtype = cache_.shape().dtype,
                              .num_kv_heads = stored.heads,
                              .scale = scale(),
                              .window = window,
                              .out = to.out,
                              .lse = to.lse,
                              .row_invariant = row_invariant_,
                              .merged = call.merged,
                              .from = from},
                             compute_.stream);
}

void AttentionSteps::attend_expanded(int64_t layer, const AttentionCall& call, const TensorView& q,
                                     const kernels::StoredKeys& keys, const Partial& to,
                                     kernels::AttentionFrom from) {
  for (const ExpandedTile& tile : tiles_of(call)) {
    const StoredHeads made = expand(tile.latents, keys.k);
    const auto rows = static_cast<int64_t>(tile.call.positions.size());
    const TensorView queries = q.slice_rows(tile.first_row, rows);
    const Partial into{to.out.slice_rows(tile.first_row, rows),
                       to.lse.slice_rows(tile.first_row, rows)};
    const bool begins = tile.latents.begins;
    if (begins || compute_.backend.continues_attention()) {
      attend_stored(layer, tile.call, queries, made, into,
                    begins ? from : kernels::AttentionFrom::result);
    } else {
      const Partial more = partial(tile_part_, rows);  // `to` may be part_
      attend_stored(layer, tile.call, queries, made, more, kernels::AttentionFrom::nothing);
      merge(more, into);
    }
  }
}

/// All layers of a pass have the same calls, and in a step their arrays must stay.
const std::vector<AttentionSteps::ExpandedTile>& AttentionSteps::tiles_of(
    const AttentionCall& call) {
  const auto [found, is_new] = tiles_.try_emplace(&call);
  if (!is_new) return found->second;
  const int64_t width = query_dim();
  const int64_t token_bytes = 2 * num_heads_ * width * size_of(cache_.shape().dtype);
  std::vector<LatentTile> tiles =
      latent_tiles(call.positions, call.items, call.runs, head_dim(),
                   std::max<int64_t>(1, expansion_.most_bytes / token_bytes));
  int64_t tokens = 0;
  for (const LatentTile& tile : tiles) tokens += tile.tokens;
  for (LatentTile& latents : tiles) {
    // A tile that goes on has the rows of one item.
    ExpandedTile& tile = found->second.emplace_back();
    tile.first_row = latents.begins ? 0 : latents.items.front().first_row;
    const int64_t rows =
        latents.begins ? std::ssize(call.positions) : latents.items.front().num_rows;
    const auto first = call.positions.begin() + tile.first_row;
    tile.call.positions.assign(first, first + rows);
    tile.call.items = latents.items;
    if (!latents.begins) tile.call.items.front().first_row = 0;
    for (const auto& [window, flops] : call.flops)
      if (tokens > 0)
        tile.call.flops[window] =
            flops * static_cast<double>(latents.tokens) / static_cast<double>(tokens);
    int64_t token = 0;
    for (const kernels::KeyRun& run : latents.runs) {
      tile.call.runs.push_back(
          {token * width, latents.tokens * width, run.num_keys, run.position, run.stride});
      token += run.num_keys;
    }
    tile.latents = std::move(latents);
  }
  return found->second;
}

/// Makes the tile's keys and values.
AttentionSteps::StoredHeads AttentionSteps::expand(const LatentTile& tile, const void* latents) {
  const DType dtype = cache_.shape().dtype;
  const int64_t row_bytes = head_dim() * size_of(dtype);
  const int64_t width = query_dim();
  const TensorView together = latents_.tensor(dtype, {tile.tokens, head_dim()});
  const TensorView k = expanded_k_.tensor(dtype, {num_heads_, tile.tokens, width});
  const TensorView v = expanded_v_.tensor(dtype, {num_heads_, tile.tokens, width});
  const double made = static_cast<double>(tile.tokens) * static_cast<double>(num_heads_);
  const ScopedSpan span(compute_.recorder, "expand_latents", Kind::compute, tile.tokens * row_bytes,
                        2 * made * expanded_->per_row_or_key());
  int64_t token = 0;
  for (const kernels::KeyRun& run : tile.runs) {
    const auto* const from = static_cast<const std::byte*>(latents) + run.offset * size_of(dtype);
    compute_.device.copy(together.row(token), from, run.num_keys * row_bytes, compute_.stream);
    token += run.num_keys;
  }
  PECIA_CHECK(expansion_.expander != nullptr, "latents of a pass that nobody expands");
  const int64_t first = expansion_.first_head;
  if (tile.tokens > 0) expansion_.expander->expand(together, {first, first + num_heads_}, k, v);
  return {{.k = k.data(), .v = v.data()}, num_heads_};
}

/// The sinks are a part over one key whose value is zero.
void AttentionSteps::add_sinks(int64_t layer, const Partial& to) {
  if (sink_logits_.empty() || to.out.rows() == 0) return;
  static constexpr std::array<int32_t, 1024> first_row{};  // the logits as a table of one row
  const int64_t rows = to.out.rows();
  const Partial sinks = partial(sink_part_, rows);
  compute_.device.zero(sinks.out.data(), sinks.out.elements() * size_of(DType::fp32),
                       compute_.stream);
  const TensorView table = sink_logits_[layer].reshape({1, num_heads_});
  constexpr auto most = static_cast<int64_t>(first_row.size());
  for (int64_t row = 0; row < rows; row += most) {
    const int64_t count = std::min(most, rows - row);
    compute_.backend.embedding(
        {table, std::span(first_row).first(count), sinks.lse.slice_rows(row, count), 0},
        compute_.stream);
  }
  merge(sinks, to);
}

void AttentionSteps::merge(const Partial& part, const Partial& into,
                           std::span<const int64_t> rows) {
  const ScopedSpan span(compute_.recorder, "merge", Kind::compute, 8 * part.out.elements());
  compute_.backend.merge({part.out, part.lse, rows, into.out, into.lse}, compute_.stream);
}

void AttentionSteps::send_home(const std::vector<Partial>& away, const std::vector<Partial>& home) {
  comm::Blocks outs, lses;
  int64_t sent = 0;
  for (int rank = 0; rank < ring_->size(); ++rank) {
    outs.send.push_back(bytes_of(compute_.as_type(away[rank].out, wire_, leaving_[rank])));
    lses.send.push_back(bytes_of(away[rank].lse));
    outs.receive.push_back(bytes_of(home[rank].out));
    lses.receive.push_back(bytes_of(home[rank].lse));
    if (rank != ring_->rank())
      sent += static_cast<int64_t>(outs.send.back().size() + lses.send.back().size());
  }
  const std::array transfers{compute_.start_all_to_all(*ring_, outs),
                             compute_.start_all_to_all(*ring_, lses)};
  compute_.wait(transfers, "partial_outputs", sent);
}

}  // namespace pecia::attention
