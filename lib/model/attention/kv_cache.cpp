// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/kv_cache.hpp"

#include <algorithm>
#include <utility>

namespace pecia::attention {
namespace {

/// a · b, or a + b. Throws InvalidArgument beyond 2^63.
int64_t times(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product))
    fail<InvalidArgument>("a KV cache of {} times {} bytes", a, b);
  return product;
}
int64_t plus(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum))
    fail<InvalidArgument>("a KV cache of {} and {} bytes", a, b);
  return sum;
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
                 RecentLayers recent, std::vector<LayerKeys> each)
    : shape_(shape),
      recent_(std::move(recent)),
      each_(std::move(each)),
      pool_(capacity),
      places_(shape.layers),
      storage_(device, device::Memory::device) {
  PECIA_CHECK(capacity >= 0, "a KV cache of {} tokens", capacity);
  PECIA_CHECK(!recent_.any() || std::ssize(recent_.are) == shape.layers,
              "{} of {} layers keep recent tokens or all", recent_.are.size(), shape.layers);
  PECIA_CHECK(each_.empty() || std::ssize(each_) == shape.layers,
              "keys of {} layers for a cache of {}", each_.size(), shape.layers);
  find_kinds();
  storage_ = device::Buffer(device, device::Memory::device, lay_out());
}

void KvCache::find_kinds() {
  for (int64_t layer = 0; layer < layers(); ++layer) {
    LayerKind kind{retention(layer), shape_};
    if (!each_.empty())
      kind.shape.num_kv_heads = each_[layer].num_kv_heads,
      kind.shape.head_dim = each_[layer].head_dim;
    PECIA_CHECK(shape_.dtype != DType::fp8 || kind.shape.head_dim % 2 == 0,
                "fp8 keys of {} elements: their scales would be misaligned", kind.shape.head_dim);
    auto found = std::ranges::find(kinds_, kind);
    if (found == kinds_.end()) found = kinds_.insert(kinds_.end(), kind);
    kind_of_.push_back(static_cast<int>(found - kinds_.begin()));
  }
  for (int64_t layer = 0; layer < layers(); ++layer) {
    const int64_t from = source(layer);
    if (from == LayerKeys::none) continue;
    PECIA_CHECK(from >= 0 && from <= layer && source(from) == from && kind(from) == kind(layer),
                "layer {} attends the keys of layer {}", layer, from);
  }
}

/// K of a layer, then V, one layer after another; then the scales in the same order. Layers that
/// keep recent tokens come last. Returns the bytes of all.
int64_t KvCache::lay_out() {
  int64_t scales = 0;
  for (const Retention which : {Retention::all, Retention::recent})
    for (int64_t layer = 0; layer < layers(); ++layer) {
      if (retention(layer) != which || !is_stored(layer)) continue;
      const KvShape& of = shape(layer);
      places_[layer] = {vector_bytes_, scales};
      const int64_t heads = (of.stores_values() ? 2 : 1) * of.num_kv_heads;
      const int64_t vectors = times(heads, capacity(which));
      vector_bytes_ = plus(vector_bytes_, times(vectors, of.head_dim * size_of(of.dtype)));
      scales = plus(scales, vectors);
    }
  return shape_.dtype == DType::fp8 ? plus(vector_bytes_, times(scales, size_of(DType::fp32)))
                                    : vector_bytes_;
}

bool KvCache::is_shared(int64_t layer) const {
  for (int64_t later = layer + 1; later < layers(); ++later)
    if (source(later) == layer) return true;
  return false;
}

int64_t KvCache::bytes_per_token() const {
  int64_t bytes = 0;
  for (int64_t layer = 0; layer < layers(); ++layer)
    if (is_stored(layer)) bytes += shape(layer).layer_bytes_per_token();
  return bytes;
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
  const KvShape& shape = this->shape(layer);
  const int64_t slots = capacity(retention(layer)), heads = shape.num_kv_heads;
  const Place& place = places_[source(layer)];
  const int64_t before = side * heads * slots;  // vectors of the layer
  std::byte* const memory = storage_.as<std::byte>();
  Stored stored{
      {static_cast<void*>(memory + place.vectors + before * shape.head_dim * size_of(shape.dtype)),
       shape.dtype,
       {heads, slots, shape.head_dim}},
      {}};
  if (shape.dtype == DType::fp8) {
    std::byte* const scales = memory + vector_bytes_;
    stored.scales = {static_cast<void*>(scales + (place.scales + before) * size_of(DType::fp32)),
                     DType::fp32,
                     {heads, slots}};
  }
  return stored;
}

}  // namespace pecia::attention
