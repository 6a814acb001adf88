// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/level_rows.hpp"

namespace pecia::attention {

KeyRows KeyRows::slice(int64_t begin, int64_t count) const {
  const auto part = [&](const TensorView& rows) {
    return rows ? rows.slice_rows(begin, count) : rows;
  };
  return {part(k), part(v), part(k_scales), part(v_scales)};
}

KeyRows slots_of_head(const KvCache& cache, int64_t layer, int64_t head) {
  const KvCache::Stored k = cache.k(layer), v = cache.v(layer);
  const auto vectors = [&](const KvCache::Stored& stored) {
    const TensorView& all = stored.vectors;
    return TensorView(all.row(head), all.dtype(), {all.size(1), all.size(2)});
  };
  const auto scales = [&](const KvCache::Stored& stored) {
    if (!stored.scales) return TensorView();
    return TensorView(stored.scales.row(head), DType::fp32, {stored.scales.size(1), 1});
  };
  return {vectors(k), vectors(v), scales(k), scales(v)};
}

KeyArena::KeyArena(const Compute& compute, const KvShape& shape)
    : shape_(shape),
      k_(compute.buffer()),
      v_(compute.buffer()),
      k_scales_(compute.buffer()),
      v_scales_(compute.buffer()) {}

void KeyArena::reserve(int64_t entries) {
  for (device::Buffer* buffer : {&k_, &v_})
    buffer->reserve(entries * shape_.head_dim * size_of(shape_.dtype));
  if (shape_.dtype != DType::fp8) return;
  for (device::Buffer* buffer : {&k_scales_, &v_scales_})
    buffer->reserve(entries * size_of(DType::fp32));
}

KeyRows KeyArena::rows(int64_t begin, int64_t count) const {
  const auto entries = [&](const device::Buffer& buffer, DType type, int64_t width) {
    return TensorView(static_cast<void*>(buffer.as<std::byte>() + begin * width * size_of(type)),
                      type, {count, width});
  };
  KeyRows rows{entries(k_, shape_.dtype, shape_.head_dim),
               entries(v_, shape_.dtype, shape_.head_dim),
               {},
               {}};
  if (shape_.dtype == DType::fp8)
    rows.k_scales = entries(k_scales_, DType::fp32, 1),
    rows.v_scales = entries(v_scales_, DType::fp32, 1);
  return rows;
}

TokenMessage MessageShape::at(std::byte* begin, int64_t keys, int64_t queries) const {
  std::byte* end = begin;
  const auto next = [&](DType type, int64_t rows, int64_t columns) {
    const TensorView part(static_cast<void*>(end), type, {rows, columns});
    end += rows * columns * size_of(type);
    return part;
  };
  TokenMessage message;
  message.keys.k = next(kv.dtype, keys, kv.head_dim);
  message.keys.v = next(kv.dtype, keys, kv.head_dim);
  message.queries = next(wire, queries, width);
  if (kv.dtype == DType::fp8)
    message.keys.k_scales = next(DType::fp32, keys, 1),
    message.keys.v_scales = next(DType::fp32, keys, 1);
  message.bytes = {begin, end};
  return message;
}

void RowPicks::add(const KeyRows& from, const TensorView& list, const KeyRows& to) {
  add(from.k, list, to.k), add(from.v, list, to.v);
  if (from.k_scales) add(from.k_scales, list, to.k_scales), add(from.v_scales, list, to.v_scales);
}

void RowPicks::run(const Compute& compute) const {
  if (picks_.empty()) return;
  int64_t bytes = 0;
  for (const auto& [from, rows, to] : picks_)
    bytes += to.elements() * (size_of(from.dtype()) + size_of(to.dtype()));
  const report::ScopedSpan span(compute.recorder, "pack", report::Kind::compute, bytes);
  compute.backend.pick_rows({picks_}, compute.stream);
}

}  // namespace pecia::attention
