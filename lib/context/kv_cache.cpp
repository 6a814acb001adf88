// SPDX-License-Identifier: Apache-2.0
#include "lib/context/kv_cache.hpp"

#include <algorithm>

namespace pecia::context {
namespace {

int64_t storage_bytes(const KvShape& shape, int64_t capacity) {
  PECIA_CHECK(capacity >= 0, "a KV cache of {} tokens", capacity);
  PECIA_CHECK(shape.dtype != DType::fp8 || shape.head_dim % 2 == 0,  // scales come after the codes
              "fp8 keys of {} elements: their scales would be misaligned", shape.head_dim);
  int64_t bytes = 0;
  if (__builtin_mul_overflow(shape.bytes_per_token(), capacity, &bytes))
    fail<InvalidArgument>("a KV cache of {} tokens of {} bytes is beyond 2^63 bytes", capacity,
                          shape.bytes_per_token());
  return bytes;
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

KvCache::KvCache(const KvShape& shape, int64_t capacity, device::Device& device)
    : shape_(shape),
      capacity_(capacity),
      free_tokens_(capacity),
      storage_(device, device::Memory::device, storage_bytes(shape, capacity)) {
  if (capacity > 0) free_[0] = capacity;
}

void KvCache::reserve(parallel::SequenceId sequence, int64_t tokens, int parts) {
  PECIA_CHECK(!taken_.contains(sequence), "sequence {} has slots already", sequence);
  PECIA_CHECK(tokens % parts == 0, "{} slots in {} parts", tokens, parts);
  PECIA_CHECK(tokens <= free_tokens_, "sequence {} wants {} KV slots, {} are free", sequence,
              tokens, free_tokens_);
  std::vector<Slots> taken;
  for (int part = 0; part < parts; ++part) taken.push_back(take(tokens / parts));
  taken_[sequence] = std::move(taken);
}

KvCache::Slots KvCache::take(int64_t tokens) {
  free_tokens_ -= tokens;
  Slots slots;
  while (tokens > 0) {
    // One gap that holds them all if there is one, else the first.
    auto gap = std::find_if(free_.begin(), free_.end(),
                            [&](const auto& free) { return free.second - free.first >= tokens; });
    if (gap == free_.end()) gap = free_.begin();
    const auto [begin, end] = *gap;
    const int64_t taken = std::min(tokens, end - begin);
    free_.erase(gap);
    if (begin + taken < end) free_[begin + taken] = end;
    slots.push_back({begin, begin + taken});
    tokens -= taken;
  }
  return slots;
}

void KvCache::give_back(const Slots& slots) {
  for (const parallel::SlotRange& range : slots) {
    free_tokens_ += range.size();
    auto next = free_.upper_bound(range.begin);
    int64_t begin = range.begin, end = range.end;
    if (next != free_.end() && next->first == end) {
      end = next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin() && std::prev(next)->second == begin) begin = std::prev(next)->first;
    free_[begin] = end;
  }
}

void KvCache::release(parallel::SequenceId sequence) {
  for (const Slots& slots : parts(sequence)) give_back(slots);
  taken_.erase(sequence);
}

void KvCache::resize(parallel::SequenceId sequence, int64_t tokens) {
  PECIA_CHECK(tokens >= 0 && parts(sequence).size() == 1, "{} slots for sequence {} in {} parts",
              tokens, sequence, parts(sequence).size());
  Slots& slots = taken_.at(sequence).front();
  int64_t had = 0;
  for (const parallel::SlotRange& range : slots) had += range.size();
  if (tokens < had) {
    give_back(part_of(slots, tokens, had - tokens));
    slots = part_of(slots, 0, tokens);
    return;
  }
  PECIA_CHECK(tokens - had <= free_tokens_, "sequence {} wants {} more KV slots, {} are free",
              sequence, tokens - had, free_tokens_);
  const Slots more = take(tokens - had);
  slots.insert(slots.end(), more.begin(), more.end());
}

const std::vector<KvCache::Slots>& KvCache::parts(parallel::SequenceId sequence) const {
  const auto found = taken_.find(sequence);
  PECIA_CHECK(found != taken_.end(), "sequence {} has no KV slots", sequence);
  return found->second;
}

KvCache::Stored KvCache::at(int64_t index) const {
  const int64_t count = shape_.num_kv_heads * capacity_;
  const int64_t bytes = count * shape_.head_dim * size_of(shape_.dtype);
  std::byte* const vectors = storage_.as<std::byte>();
  Stored stored{{static_cast<void*>(vectors + index * bytes),
                 shape_.dtype,
                 {shape_.num_kv_heads, capacity_, shape_.head_dim}},
                {}};
  if (shape_.dtype == DType::fp8) {
    std::byte* const scales = vectors + 2 * shape_.layers * bytes;
    stored.scales = {static_cast<void*>(scales + index * count * size_of(DType::fp32)),
                     DType::fp32,
                     {shape_.num_kv_heads, capacity_}};
  }
  return stored;
}

}  // namespace pecia::context
