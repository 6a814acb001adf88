// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/attention_steps.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace pecia::attention {

using report::Kind;
using report::ScopedSpan;

namespace {

int64_t num_slots(const std::vector<parallel::SlotRange>& slots) {
  int64_t count = 0;
  for (const parallel::SlotRange& range : slots) count += range.size();
  return count;
}

}  // namespace

int64_t HaloMessages::tokens_leaving() const {
  int64_t tokens = 0;
  for (const std::vector<MessageBlock>& blocks : leaving)
    for (const MessageBlock& block : blocks) tokens += block.tokens;
  return tokens;
}

int64_t HaloMessages::tokens_coming() const {
  return std::accumulate(coming.begin(), coming.end(), int64_t{0});
}

AttentionSteps::AttentionSteps(const Compute& compute, KvCache& cache, int64_t num_heads,
                               std::vector<int64_t> windows, kernels::RowInvariant row_invariant,
                               std::optional<float> scale)
    : compute_(compute),
      cache_(cache),
      num_heads_(num_heads),
      windows_(std::move(windows)),
      window_lengths_(windows_),
      row_invariant_(row_invariant),
      scale_(scale.value_or(1.0f / std::sqrt(static_cast<float>(head_dim())))),
      sink_part_(compute),
      rounded_q_(compute.buffer()),
      part_(compute),
      travelling_{compute.buffer(), compute.buffer()},
      lse_(compute.buffer()) {
  PECIA_CHECK(static_cast<int64_t>(windows_.size()) == cache.shape().layers,
              "{} windows for {} layers", windows_.size(), cache.shape().layers);
  std::sort(window_lengths_.begin(), window_lengths_.end());
  window_lengths_.erase(std::unique(window_lengths_.begin(), window_lengths_.end()),
                        window_lengths_.end());
}

void AttentionSteps::begin_pass(comm::Communicator& ring) {
  ring_ = &ring, messages_ = {};
  while (std::ssize(home_) < ring.size())
    away_.emplace_back(compute_), home_.emplace_back(compute_);
}

Partial AttentionSteps::partial(Buffers& buffers, int64_t rows) const {
  return {queries(buffers.out, rows), lse(buffers.lse, rows)};
}

void AttentionSteps::count_flops(AttentionCall& call,
                                 const std::vector<parallel::GlobalRange>& rows,
                                 const std::vector<parallel::StridedRange>& keys) const {
  for (const int64_t window : window_lengths_) {
    int64_t pairs = 0;
    for (const parallel::GlobalRange& range : rows)
      pairs += parallel::count_seen(range, keys, window);
    call.flops[window] +=
        4.0 * static_cast<double>(num_heads_ * head_dim()) * static_cast<double>(pairs);
  }
}

kernels::StoredKeys AttentionSteps::cached(int64_t layer) const {
  const KvCache::Stored k = cache_.k(layer), v = cache_.v(layer);
  kernels::StoredKeys keys{k.vectors.data(), v.vectors.data()};
  if (k.scales) keys.k_scales = k.scales.as<float>(), keys.v_scales = v.scales.as<float>();
  return keys;
}

void AttentionSteps::add_runs(std::vector<kernels::KeyRun>& runs,
                              const std::vector<parallel::StridedRange>& positions,
                              const std::vector<parallel::SlotRange>& slots, int64_t offset,
                              int64_t head_stride) const {
  for (const auto& [slot, range] : parallel::stretches(positions, slots))
    runs.push_back(
        {offset + slot * head_dim(), head_stride, range.count, range.begin, range.stride});
}

void AttentionSteps::store(int64_t layer, const TensorView& k, const TensorView& v,
                           std::span<const int64_t> slots) {
  const ScopedSpan span(compute_.recorder, "kv_store", Kind::compute,
                        k.rows() * cache_.shape().layer_bytes_per_token());
  const auto put = [&](const TensorView& x, const KvCache::Stored& to) {
    compute_.backend.kv_store({x, slots, to.vectors, to.scales}, compute_.stream);
  };
  put(k, cache_.k(layer));
  put(v, cache_.v(layer));
}

void AttentionSteps::rotate_and_store(int64_t layer, kernels::RotateAndStoreArgs heads,
                                      std::span<const int64_t> slots) {
  const ScopedSpan span(compute_.recorder, "rotate_and_store", Kind::compute,
                        heads.k.rows() * cache_.shape().layer_bytes_per_token());
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
  const TensorView rounded = rounded_q_.tensor(dtype, {rows, num_heads_, head_dim()});
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
  const int64_t window = windows_[layer];
  const auto flops = call.flops.find(window);
  const ScopedSpan span(compute_.recorder, "attention", Kind::compute, 0,
                        flops == call.flops.end() ? 0 : flops->second);
  const KvShape& shape = cache_.shape();
  compute_.backend.attention({.q = q,
                              .query_positions = call.positions,
                              .items = call.items,
                              .runs = call.runs,
                              .keys = keys,
                              .kv_dtype = shape.dtype,
                              .num_kv_heads = shape.num_kv_heads,
                              .scale = scale_,
                              .window = window,
                              .out = to.out,
                              .lse = to.lse,
                              .row_invariant = row_invariant_,
                              .merged = call.merged,
                              .from = from},
                             compute_.stream);
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

void AttentionSteps::plan_messages(Retention retention, std::vector<MessageBlock> blocks,
                                   std::vector<int64_t> tokens,
                                   std::vector<std::vector<KeptTokens>> kept) {
  messages_[static_cast<size_t>(retention)] = {std::move(blocks), std::move(tokens),
                                               std::move(kept)};
}

AttentionSteps::MessageParts AttentionSteps::parts(const device::Buffer& message,
                                                   int64_t tokens) const {
  const KvShape& shape = cache_.shape();
  const int64_t vectors = tokens * shape.num_kv_heads;
  std::byte* const k = message.as<std::byte>();
  std::byte* const v = k + vectors * shape.head_dim * size_of(shape.dtype);
  if (shape.dtype != DType::fp8) return {k, v};
  auto* const scales = reinterpret_cast<float*>(v + vectors * shape.head_dim);
  return {k, v, scales, scales + vectors};
}

/// Writes the blocks' cached tokens of one of the cache's tensors. Returns the end of the blocks.
std::byte* AttentionSteps::pack_cached(const TensorView& cached,
                                       const std::vector<MessageBlock>& blocks,
                                       std::byte* message) {
  const int64_t token_bytes = (cached.rank() == 3 ? head_dim() : 1) * size_of(cached.dtype());
  for (const MessageBlock& block : blocks)
    for (int64_t head = 0; head < cache_.shape().num_kv_heads; ++head) {
      const auto* from = static_cast<const std::byte*>(cached.row(head));
      std::byte* to = message;
      for (const parallel::SlotRange& range : block.cached) {
        compute_.device.copy(to, from + range.begin * token_bytes, range.size() * token_bytes,
                             compute_.stream);
        to += range.size() * token_bytes;
      }
      message += block.tokens * token_bytes;
    }
  return message;
}

/// Writes the rows that the blocks have after their cached tokens. A block is a small cache: its
/// places are slots.
void AttentionSteps::pack_rows(const std::vector<MessageBlock>& blocks, const TensorView& x,
                               std::byte* vectors, float* scales) {
  const KvShape& shape = cache_.shape();
  for (const MessageBlock& block : blocks) {
    const int64_t places = shape.num_kv_heads * block.tokens;
    if (block.rows > 0) {
      block_slots_.resize(block.rows);
      std::iota(block_slots_.begin(), block_slots_.end(), num_slots(block.cached));
      TensorView of_scales;
      if (scales != nullptr)
        of_scales = {static_cast<void*>(scales), DType::fp32, {shape.num_kv_heads, block.tokens}};
      compute_.backend.kv_store({x.slice_rows(block.first_row, block.rows),
                                 block_slots_,
                                 {static_cast<void*>(vectors),
                                  shape.dtype,
                                  {shape.num_kv_heads, block.tokens, shape.head_dim}},
                                 of_scales},
                                compute_.stream);
    }
    vectors += places * shape.head_dim * size_of(shape.dtype);
    if (scales != nullptr) scales += places;
  }
}

void AttentionSteps::pack(int64_t layer, const TensorView& k, const TensorView& v) {
  const Retention retention = cache_.retention(layer);
  const Messages& messages = messages_of(retention);
  const ScopedSpan span(compute_.recorder, "pack", Kind::compute, message_bytes(retention, 0));
  const MessageParts to = parts(travelling_[0], messages.tokens[0]);
  const KvCache::Stored cached_k = cache_.k(layer), cached_v = cache_.v(layer);
  pack_cached(cached_k.vectors, messages.blocks, to.k);
  pack_cached(cached_v.vectors, messages.blocks, to.v);
  if (to.k_scales != nullptr) {
    pack_cached(cached_k.scales, messages.blocks, reinterpret_cast<std::byte*>(to.k_scales));
    pack_cached(cached_v.scales, messages.blocks, reinterpret_cast<std::byte*>(to.v_scales));
  }
  pack_rows(messages.blocks, k, to.k, to.k_scales);
  pack_rows(messages.blocks, v, to.v, to.v_scales);
}

/// Copies what this rank keeps of the message that is here at `step`.
void AttentionSteps::keep(int64_t layer, int step) {
  const KvShape& shape = cache_.shape();
  const Messages& messages = messages_of(cache_.retention(layer));
  int64_t tokens = 0;
  for (const KeptTokens& kept : messages.kept[step])
    for (const parallel::SlotRange& range : kept.slots) tokens += range.size();
  if (tokens == 0) return;
  const ScopedSpan span(compute_.recorder, "keep", Kind::compute,
                        tokens * shape.layer_bytes_per_token());
  const MessageParts from = parts(travelling_[step % 2], messages.tokens[step]);
  const auto copy = [&](const void* message, const TensorView& to) {
    if (!to) return;
    const int64_t token_bytes = (to.rank() == 3 ? head_dim() : 1) * size_of(to.dtype());
    for (const KeptTokens& kept : messages.kept[step])
      for (int64_t head = 0; head < shape.num_kv_heads; ++head) {
        const std::byte* next =
            static_cast<const std::byte*>(message) +
            (kept.block_begin * shape.num_kv_heads + head * kept.block_tokens + kept.first) *
                token_bytes;
        auto* const slots = static_cast<std::byte*>(to.row(head));
        for (const parallel::SlotRange& range : kept.slots) {
          const int64_t bytes = range.size() * token_bytes;
          compute_.device.copy(slots + range.begin * token_bytes, next, bytes, compute_.stream);
          next += bytes;
        }
      }
  };
  const KvCache::Stored k = cache_.k(layer), v = cache_.v(layer);
  copy(from.k, k.vectors);
  copy(from.v, v.vectors);
  copy(from.k_scales, k.scales);
  copy(from.v_scales, v.scales);
}

void AttentionSteps::pass_keys(
    int64_t layer, const TensorView& k, const TensorView& v,
    const std::function<void(int step, const kernels::StoredKeys& keys)>& visit) {
  const int size = ring_->size(), rank = ring_->rank();
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  const Retention retention = cache_.retention(layer);
  const bool own_in_message = !messages_of(retention).kept.empty();
  if (size > 1) {
    int64_t most = 0;
    for (int step = 0; step < size; ++step) most = std::max(most, message_bytes(retention, step));
    for (device::Buffer& buffer : travelling_) buffer.reserve(most);
    pack(layer, k, v);
  }
  const auto message = [&](int step) {
    return std::span(travelling_[step % 2].as<std::byte>(),
                     static_cast<size_t>(message_bytes(retention, step)));
  };
  for (int step = 0; step < size; ++step) {
    std::unique_ptr<comm::Transfer> transfer;
    if (step + 1 < size)
      transfer = ring_->start_send_receive(message(step), right, message(step + 1), left);
    if (step == 0 && !own_in_message) {
      visit(step, cached(layer));
    } else {
      const MessageParts here = parts(travelling_[step % 2], messages_of(retention).tokens[step]);
      visit(step, {here.k, here.v, here.k_scales, here.v_scales});
    }
    if (own_in_message) keep(layer, step);
    if (transfer) wait(*transfer, "ring_pass_kv", message_bytes(retention, step));
  }
}

void AttentionSteps::exchange_halo(
    int64_t layer, const HaloMessages& messages,
    const std::function<void(const kernels::StoredKeys& keys)>& visit_own,
    const std::function<void(const kernels::StoredKeys& keys)>& visit_halo) {
  const KvShape& shape = cache_.shape();
  const int64_t leaving = messages.tokens_leaving(), coming = messages.tokens_coming();
  const int64_t token_bytes = shape.layer_bytes_per_token();
  travelling_[0].reserve(leaving * token_bytes);
  travelling_[1].reserve(coming * token_bytes);
  const MessageParts out = parts(travelling_[0], leaving), in = parts(travelling_[1], coming);
  const KvCache::Stored k = cache_.k(layer), v = cache_.v(layer);
  comm::Exchange exchange;
  const auto add = [&](const TensorView& cached, void* to, void* from) {
    if (!cached) return;
    auto *packed = static_cast<std::byte*>(to), *received = static_cast<std::byte*>(from);
    const int64_t bytes = shape.num_kv_heads * (cached.rank() == 3 ? shape.head_dim : 1) *
                          size_of(cached.dtype());  // of a token
    for (int rank = 0; rank < ring_->size(); ++rank) {
      std::byte* const begin = packed;
      packed = pack_cached(cached, messages.leaving[rank], packed);
      if (packed != begin) exchange.sends.push_back({{begin, packed}, rank});
      const int64_t tokens = messages.coming[rank];
      if (tokens > 0)
        exchange.receives.push_back({{received, static_cast<size_t>(tokens * bytes)}, rank});
      received += tokens * bytes;
    }
  };
  {
    const ScopedSpan span(compute_.recorder, "pack", Kind::compute, leaving * token_bytes);
    add(k.vectors, out.k, in.k);
    add(v.vectors, out.v, in.v);
    add(k.scales, out.k_scales, in.k_scales);
    add(v.scales, out.v_scales, in.v_scales);
  }
  const auto transfer = ring_->start_exchange(exchange, {"halo", ring_->next_operation()});
  visit_own(cached(layer));
  wait(*transfer, "halo", leaving * token_bytes);
  if (coming > 0) visit_halo({in.k, in.v, in.k_scales, in.v_scales});
}

void AttentionSteps::send_home(const std::vector<Partial>& away, const std::vector<Partial>& home) {
  comm::Blocks outs, lses;
  int64_t sent = 0;
  for (int rank = 0; rank < ring_->size(); ++rank) {
    outs.send.push_back(bytes_of(away[rank].out));
    lses.send.push_back(bytes_of(away[rank].lse));
    outs.receive.push_back(bytes_of(home[rank].out));
    lses.receive.push_back(bytes_of(home[rank].lse));
    if (rank != ring_->rank())
      sent += static_cast<int64_t>(outs.send.back().size() + lses.send.back().size());
  }
  const ScopedSpan span(compute_.recorder, "partial_outputs", Kind::comm, sent);
  const auto first = ring_->start_all_to_all(outs), second = ring_->start_all_to_all(lses);
  first->wait();
  second->wait();
}

void AttentionSteps::wait(comm::Transfer& transfer, const char* name, int64_t bytes) {
  const ScopedSpan span(compute_.recorder, name, Kind::comm, bytes);
  transfer.wait();
}

}  // namespace pecia::attention
