// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/key_messages.hpp"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

namespace pecia::attention {

using report::Kind;
using report::ScopedSpan;

int64_t HaloMessages::tokens_leaving() const {
  int64_t tokens = 0;
  for (const std::vector<MessageBlock>& blocks : leaving)
    for (const MessageBlock& block : blocks) tokens += block.tokens;
  return tokens;
}

int64_t HaloMessages::tokens_coming() const {
  return std::accumulate(coming.begin(), coming.end(), int64_t{0});
}

KeyMessages::KeyMessages(const Compute& compute, KvCache& cache)
    : compute_(compute), cache_(cache), travelling_{compute.buffer(), compute.buffer()} {}

void KeyMessages::begin_pass(comm::Communicator& ring) {
  ring_ = &ring;
  planned_.assign(cache_.kinds().size(), {});
}

void KeyMessages::plan(int kind, std::vector<MessageBlock> blocks, std::vector<int64_t> tokens,
                       std::vector<std::vector<KeptTokens>> kept) {
  planned_.at(kind) = {std::move(blocks), std::move(tokens), std::move(kept)};
}

KeyMessages::Parts KeyMessages::parts(const KvShape& shape, const device::Buffer& message,
                                      int64_t tokens) {
  const int64_t vectors = tokens * shape.num_kv_heads;
  std::byte* const k = message.as<std::byte>();
  std::byte* const after = k + vectors * shape.head_dim * size_of(shape.dtype);
  const bool both = shape.stores_values();
  std::byte* const v = both ? after : k;
  if (shape.dtype != DType::fp8) return {k, v};
  auto* const scales = reinterpret_cast<float*>(both ? v + vectors * shape.head_dim : after);
  return {k, v, scales, both ? scales + vectors : scales};
}

/// Writes the blocks' cached tokens of one of the cache's tensors. Returns the end of the blocks.
std::byte* KeyMessages::pack_cached(const TensorView& cached,
                                    const std::vector<MessageBlock>& blocks, std::byte* message) {
  const int64_t token_bytes = bytes_of_slot(cached);
  for (const MessageBlock& block : blocks)
    for (int64_t head = 0; head < cached.rows(); ++head) {
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
void KeyMessages::pack_rows(const KvShape& shape, const std::vector<MessageBlock>& blocks,
                            const TensorView& x, std::byte* vectors, float* scales) {
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

void KeyMessages::pack(int64_t layer, const TensorView& k, const TensorView& v) {
  const KvShape& shape = cache_.shape(layer);
  const Planned& messages = planned(layer);
  const ScopedSpan span(compute_.recorder, "pack", Kind::compute, message_bytes(layer, 0));
  const Parts to = parts(shape, travelling_[0], messages.tokens[0]);
  const auto pack_side = [&](const KvCache::Stored& cached, const TensorView& rows,
                             std::byte* vectors, float* scales) {
    pack_cached(cached.vectors, messages.blocks, vectors);
    if (scales != nullptr)
      pack_cached(cached.scales, messages.blocks, reinterpret_cast<std::byte*>(scales));
    pack_rows(shape, messages.blocks, rows, vectors, scales);
  };
  pack_side(cache_.k(layer), k, to.k, to.k_scales);
  if (shape.stores_values()) pack_side(cache_.v(layer), v, to.v, to.v_scales);
}

/// Copies what this rank keeps of the message that is here at `step`. A layer that attends what
/// another one stores has that one's messages, which are kept already.
void KeyMessages::keep(int64_t layer, int step) {
  if (!cache_.is_stored(layer)) return;
  const KvShape& shape = cache_.shape(layer);
  const Planned& messages = planned(layer);
  int64_t tokens = 0;
  for (const KeptTokens& kept : messages.kept[step])
    for (const parallel::SlotRange& range : kept.slots) tokens += range.size();
  if (tokens == 0) return;
  const ScopedSpan span(compute_.recorder, "keep", Kind::compute,
                        tokens * shape.layer_bytes_per_token());
  const Parts from = parts(shape, travelling_[step % 2], messages.tokens[step]);
  const auto copy = [&](const void* message, const TensorView& to) {
    if (!to) return;
    const int64_t token_bytes = bytes_of_slot(to);
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
  const KvCache::Stored k = cache_.k(layer);
  copy(from.k, k.vectors);
  copy(from.k_scales, k.scales);
  if (!shape.stores_values()) return;
  const KvCache::Stored v = cache_.v(layer);
  copy(from.v, v.vectors);
  copy(from.v_scales, v.scales);
}

void KeyMessages::pass_round(
    int64_t layer, const TensorView& k, const TensorView& v,
    const std::function<void(int step, const kernels::StoredKeys& keys)>& visit) {
  const int size = ring_->size(), rank = ring_->rank();
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  const KvShape& shape = cache_.shape(layer);
  const bool own_in_message = !planned(layer).kept.empty();
  if (size > 1) {
    int64_t most = 0;
    for (int step = 0; step < size; ++step) most = std::max(most, message_bytes(layer, step));
    for (device::Buffer& buffer : travelling_) buffer.reserve(most);
    pack(layer, k, v);
  }
  const auto message = [&](int step) {
    return std::span(travelling_[step % 2].as<std::byte>(),
                     static_cast<size_t>(message_bytes(layer, step)));
  };
  for (int step = 0; step < size; ++step) {
    std::unique_ptr<comm::Transfer> transfer;
    if (step + 1 < size)
      transfer = ring_->start_send_receive(message(step), right, message(step + 1), left);
    if (step == 0 && !own_in_message) {
      visit(step, cache_.stored_keys(layer));
    } else {
      const Parts here = parts(shape, travelling_[step % 2], planned(layer).tokens[step]);
      visit(step, {here.k, here.v, here.k_scales, here.v_scales});
    }
    if (own_in_message) keep(layer, step);
    if (transfer) compute_.wait(*transfer, "ring_pass_kv", message_bytes(layer, step));
  }
}

void KeyMessages::exchange(int64_t layer, const HaloMessages& messages,
                           const std::function<void(const kernels::StoredKeys& keys)>& visit_own,
                           const std::function<void(const kernels::StoredKeys& keys)>& visit_halo) {
  const KvShape& shape = cache_.shape(layer);
  const int64_t leaving = messages.tokens_leaving(), coming = messages.tokens_coming();
  const int64_t token_bytes = shape.layer_bytes_per_token();
  travelling_[0].reserve(leaving * token_bytes);
  travelling_[1].reserve(coming * token_bytes);
  const Parts out = parts(shape, travelling_[0], leaving);
  const Parts in = parts(shape, travelling_[1], coming);
  const KvCache::Stored k = cache_.k(layer);
  const KvCache::Stored v = shape.stores_values() ? cache_.v(layer) : KvCache::Stored{};
  comm::Exchange exchange;
  const auto add = [&](const TensorView& cached, void* to, void* from) {
    if (!cached) return;
    auto *packed = static_cast<std::byte*>(to), *received = static_cast<std::byte*>(from);
    const int64_t bytes = shape.num_kv_heads * bytes_of_slot(cached);  // of a token
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
  visit_own(cache_.stored_keys(layer));
  compute_.wait(*transfer, "halo", leaving * token_bytes);
  if (coming > 0) visit_halo({in.k, in.v, in.k_scales, in.v_scales});
}

}  // namespace pecia::attention
