// SPDX-License-Identifier: Apache-2.0
#include "lib/context/attention_steps.hpp"

#include <algorithm>
#include <cmath>

namespace pecia::context {

using report::Kind;
using report::ScopedSpan;

std::vector<parallel::SequenceId> sequences_seen(const std::vector<parallel::PassSequence>& pass,
                                                 const parallel::KvMap& map) {
  std::vector<parallel::SequenceId> seen;
  for (const parallel::PassSequence& sequence : pass)
    for (const parallel::SequenceId member : map.lineage(sequence.sequence)) seen.push_back(member);
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  return seen;
}

AttentionSteps::AttentionSteps(const Compute& compute, KvCache& cache, int64_t num_heads,
                               std::vector<int64_t> windows, kernels::RowInvariant row_invariant)
    : compute_(compute),
      cache_(cache),
      num_heads_(num_heads),
      windows_(std::move(windows)),
      window_lengths_(windows_),
      row_invariant_(row_invariant),
      travelling_{compute.buffer(), compute.buffer()} {
  PECIA_CHECK(static_cast<int64_t>(windows_.size()) == cache.shape().layers,
              "{} windows for {} layers", windows_.size(), cache.shape().layers);
  std::sort(window_lengths_.begin(), window_lengths_.end());
  window_lengths_.erase(std::unique(window_lengths_.begin(), window_lengths_.end()),
                        window_lengths_.end());
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

void AttentionSteps::attend(int64_t layer, const AttentionCall& call, const TensorView& q,
                            const kernels::StoredKeys& keys, const Partial& to) {
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
                              .scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim)),
                              .window = window,
                              .out = to.out,
                              .lse = to.lse,
                              .row_invariant = row_invariant_},
                             compute_.stream);
}

void AttentionSteps::merge(const Partial& part, const Partial& into,
                           std::span<const int64_t> rows) {
  const ScopedSpan span(compute_.recorder, "merge", Kind::compute, 8 * part.out.elements());
  compute_.backend.merge({part.out, part.lse, rows, into.out, into.lse}, compute_.stream);
}

void AttentionSteps::plan_message(std::vector<MessageBlock> blocks) {
  blocks_ = std::move(blocks);
  message_tokens_ = 0;
  for (const MessageBlock& block : blocks_) message_tokens_ += block.padded_tokens;
}

kernels::StoredKeys AttentionSteps::in_message(const device::Buffer& message) const {
  const KvShape& shape = cache_.shape();
  const int64_t vectors = message_tokens_ * shape.num_kv_heads;
  const std::byte* const k = message.as<std::byte>();
  const std::byte* const v = k + vectors * shape.head_dim * size_of(shape.dtype);
  if (shape.dtype != DType::fp8) return {k, v};
  const auto* const scales = reinterpret_cast<const float*>(v + vectors * shape.head_dim);
  return {k, v, scales, scales + vectors};
}

void AttentionSteps::pack(int64_t layer, std::byte* message) {
  const ScopedSpan span(compute_.recorder, "pack", Kind::compute, message_bytes());
  const KvCache::Stored k = cache_.k(layer), v = cache_.v(layer);
  for (const TensorView& cached : {k.vectors, v.vectors, k.scales, v.scales}) {
    if (!cached) continue;
    const int64_t token_bytes = (cached.rank() == 3 ? head_dim() : 1) * size_of(cached.dtype());
    for (const MessageBlock& block : blocks_) {
      const auto slots = part_of(cache_.slots(block.sequence, block.part), 0, block.held);
      for (int64_t head = 0; head < cache_.shape().num_kv_heads; ++head) {
        const auto* from = static_cast<const std::byte*>(cached.row(head));
        std::byte* to = message;
        for (const parallel::SlotRange& range : slots) {
          compute_.device.copy(to, from + range.begin * token_bytes, range.size() * token_bytes,
                               compute_.stream);
          to += range.size() * token_bytes;
        }
        message += block.padded_tokens * token_bytes;
      }
    }
  }
}

void AttentionSteps::pass_keys(
    int64_t layer, const std::function<void(int step, const kernels::StoredKeys& keys)>& visit) {
  const int size = ring_->size(), rank = ring_->rank();
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  const auto bytes = static_cast<size_t>(message_bytes());
  if (size > 1) {
    for (device::Buffer& buffer : travelling_) buffer.reserve(message_bytes());
    pack(layer, travelling_[0].as<std::byte>());
  }
  for (int step = 0; step < size; ++step) {
    device::Buffer& here = travelling_[step % 2];
    std::unique_ptr<comm::Transfer> transfer;
    if (step + 1 < size)
      transfer =
          ring_->start_send_receive({here.as<std::byte>(), bytes}, right,
                                    {travelling_[(step + 1) % 2].as<std::byte>(), bytes}, left);
    visit(step, step == 0 ? cached(layer) : in_message(here));
    if (transfer) wait(*transfer, "ring_pass_kv", message_bytes());
  }
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

}  // namespace pecia::context
