// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/kv_cache.hpp"

#include <algorithm>
#include <utility>

namespace pecia::attention {
namespace {

int64_t storage_bytes(const KvShape& shape, int64_t slots) {
  PECIA_CHECK(shape.dtype != DType::fp8 || shape.head_dim % 2 == 0,  // scales come after the codes
              "fp8 keys of {} elements: their scales would be misaligned", shape.head_dim);
  int64_t bytes = 0;
  if (slots < 0 || __builtin_mul_overflow(shape.layer_bytes_per_token(), slots, &bytes))
    fail<InvalidArgument>("a KV cache of {} slots of {} bytes is beyond 2^63 bytes", slots,
                          shape.layer_bytes_per_token());
  return bytes;
}

int64_t slots_of_layers(int64_t layers, int64_t capacity) {
  int64_t slots = 0;
  PECIA_CHECK(capacity >= 0 && !__builtin_mul_overflow(layers, capacity, &slots),
              "a KV cache of {} tokens", capacity);
  return slots;
}

}  // namespace

std::vector<parallel::SlotRange> part_of(const std::vector<parallel::SlotRange>& slots,
                                         int64_t first, int64_t count) {
  std::vector<parallel::SlotRange> part;
  for (const parallel::SlotRange& range : slots) {
    if (count == 0) break;
    const int64_t begin = std::min(range.begin + first, range.end);
    const int64_t end = std::min(begin + count, range.end);
    if (begin < end) part.push_back({begin, end});
    first -= begin - range.begin;
    count -= end - begin;
  }
  PECIA_CHECK(count == 0, "{} tokens more than KV slots", count);
  return part;
}

int64_t num_slots(const std::vector<parallel::SlotRange>& ranges) {
  int64_t count = 0;
  for (const parallel::SlotRange& range : ranges) count += range.size();
  return count;
}

void append_slots(std::vector<int64_t>& to, const std::vector<parallel::SlotRange>& ranges) {
  for (const parallel::SlotRange& range : ranges)
    for (int64_t slot = range.begin; slot < range.end; ++slot) to.push_back(slot);
}

KvCache::KvCache(const KvShape& shape, int64_t capacity, device::Device& device,
                 RecentLayers recent)
    : shape_(shape),
      recent_(std::move(recent)),
      pool_(capacity),
      first_slot_(shape.layers),
      storage_(device, device::Memory::device) {
  PECIA_CHECK(!recent_.any() || std::ssize(recent_.are) == shape.layers,
              "{} of {} layers keep recent tokens or all", recent_.are.size(), shape.layers);
  for (const Retention which : {Retention::all, Retention::recent}) {
    int64_t layers = 0;
    for (int64_t layer = 0; layer < shape.layers; ++layer)
      if (retention(layer) == which)
        first_slot_[layer] = all_slots_ + slots_of_layers(layers++, this->capacity(which));
    all_slots_ += slots_of_layers(layers, this->capacity(which));
  }
  storage_ = device::Buffer(device, device::Memory::device, storage_bytes(shape, all_slots_));
}

void KvCache::reserve(parallel::SequenceId sequence, int64_t tokens, int parts) {
  PECIA_CHECK(!taken_.contains(sequence), "sequence {} has slots already", sequence);
  PECIA_CHECK(tokens % parts == 0, "{} slots in {} parts", tokens, parts);
  PECIA_CHECK(tokens <= free_tokens(), "sequence {} wants {} KV slots, {} are free", sequence,
              tokens, free_tokens());
  std::vector<Slots> taken;
  for (int part = 0; part < parts; ++part) taken.push_back(pool_.take(tokens / parts));
  taken_[sequence] = std::move(taken);
}

void KvCache::release(parallel::SequenceId sequence) {
  for (const Slots& slots : parts(sequence)) pool_.give_back(slots);
  taken_.erase(sequence);
}

void KvCache::resize(parallel::SequenceId sequence, int64_t tokens) {
  const int64_t parts = std::ssize(this->parts(sequence)), of_part = tokens / parts;
  PECIA_CHECK(tokens >= 0 && tokens % parts == 0, "{} slots for sequence {} in {} parts", tokens,
              sequence, parts);
  for (Slots& slots : taken_.at(sequence)) {
    const int64_t had = num_slots(slots);
    if (of_part < had) {
      pool_.give_back(part_of(slots, of_part, had - of_part));
      slots = part_of(slots, 0, of_part);
      continue;
    }
    PECIA_CHECK(of_part - had <= free_tokens(), "sequence {} wants {} more KV slots, {} are free",
                sequence, of_part - had, free_tokens());
    for (const parallel::SlotRange& more :
         pool_.take(of_part - had, slots.empty() ? -1 : slots.back().end)) {
      if (!slots.empty() && slots.back().end == more.begin)
        slots.back().end = more.end;
      else
        slots.push_back(more);
    }
  }
}

void KvCache::verify() const {
  Slots taken;
  for (const auto& [sequence, parts] : taken_)
    for (const Slots& slots : parts) taken.insert(taken.end(), slots.begin(), slots.end());
  pool_.verify(std::move(taken));
}

KvCache::Stored KvCache::v(int64_t layer) const {
  PECIA_CHECK(shape_.stores_values(), "values of layer {} are in its keys", layer);
  return at(layer, 1);
}

std::vector<KvCache::Stored> KvCache::stored(int64_t layer) const {
  if (!shape_.stores_values()) return {k(layer)};
  return {k(layer), v(layer)};
}

kernels::StoredKeys KvCache::stored_keys(int64_t layer) const {
  const Stored keys = k(layer), values = stored(layer).back();
  kernels::StoredKeys stored{keys.vectors.data(), values.vectors.data()};
  if (keys.scales)
    stored.k_scales = keys.scales.as<float>(), stored.v_scales = values.scales.as<float>();
  return stored;
}

const std::vector<KvCache::Slots>& KvCache::parts(parallel::SequenceId sequence) const {
  const auto found = taken_.find(sequence);
  PECIA_CHECK(found != taken_.end(), "sequence {} has no KV slots", sequence);
  return found->second;
}

KvCache::Stored KvCache::at(int64_t layer, int64_t side) const {
  const int64_t slots = capacity(retention(layer)), heads = shape_.num_kv_heads;
  // K of a layer, then V, one layer after another; then the scales in the same order.
  const int64_t sides = shape_.stores_values() ? 2 : 1;
  const int64_t before = heads * (sides * first_slot_.at(layer) + side * slots);  // vectors
  std::byte* const vectors = storage_.as<std::byte>();
  const int64_t vector_bytes = shape_.head_dim * size_of(shape_.dtype);
  Stored stored{{static_cast<void*>(vectors + before * vector_bytes),
                 shape_.dtype,
                 {heads, slots, shape_.head_dim}},
                {}};
  if (shape_.dtype == DType::fp8) {
    std::byte* const scales = vectors + sides * heads * all_slots_ * vector_bytes;
    stored.scales = {
        static_cast<void*>(scales + before * size_of(DType::fp32)), DType::fp32, {heads, slots}};
  }
  return stored;
}

}  // namespace pecia::attention
