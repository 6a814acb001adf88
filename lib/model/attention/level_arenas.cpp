// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/level_arenas.hpp"

namespace pecia::attention {

using report::Kind;
using report::ScopedSpan;

LevelArenas::LevelArenas(const Compute& compute, const AttentionSteps& steps)
    : compute_(compute),
      steps_(steps),
      queries_(compute.buffer()),
      outputs_(compute.buffer()),
      sums_(compute.buffer()) {}

void LevelArenas::reserve_queries(int64_t entries) {
  queries_.reserve(entries * width() * size_of(DType::fp32));
}

void LevelArenas::reserve_results(int64_t entries) {
  outputs_.reserve(entries * width() * size_of(DType::fp32));
  sums_.reserve(entries * group() * size_of(DType::fp32));
}

TensorView LevelArenas::rows(const device::Buffer& buffer, int64_t begin, int64_t count) const {
  return {static_cast<void*>(buffer.as<float>() + begin * width()), DType::fp32, {count, width()}};
}

Partial LevelArenas::results(int64_t begin, int64_t count) const {
  return {rows(outputs_, begin, count),
          TensorView(static_cast<void*>(sums_.as<float>() + begin * group()), DType::fp32,
                     {count, group()})};
}

void LevelArenas::attend(int64_t queries, std::span<const int64_t> positions,
                         std::span<const kernels::AttentionItem> items,
                         std::span<const kernels::KeyRun> runs, double flops, const KeyArena& keys,
                         const Partial& results) const {
  const ScopedSpan span(compute_.recorder, "attention", Kind::compute, 0, flops);
  const auto heads = [&](const TensorView& of) {
    return of.reshape({queries, group(), steps_.head_dim()});
  };
  compute_.backend.attention({.q = heads(this->queries(0, queries)),
                              .query_positions = positions,
                              .items = items,
                              .runs = runs,
                              .keys = keys.keys(),
                              .kv_dtype = steps_.cache().shape().dtype,
                              .num_kv_heads = 1,
                              .scale = steps_.scale(),
                              .out = heads(results.out),
                              .lse = results.lse},
                             compute_.stream);
}

kernels::PickedParts LevelArenas::part(const LevelLayout::Pick& rows, const TokenLists& lists,
                                       const Partial& results) const {
  return {results.out.reshape({results.out.rows(), group(), steps_.head_dim()}), results.lse,
          lists.of(TokenLists::queries, rows), rows.head * group()};
}

void LevelArenas::merge(std::span<const kernels::PickedParts> parts, const Partial& into) const {
  if (parts.empty()) return;
  const ScopedSpan span(compute_.recorder, "merge", Kind::compute);
  compute_.backend.merge_picked({parts, into.out, into.lse}, compute_.stream);
}

void LevelArenas::merge(std::span<const LevelLayout::Pick> rows, const TokenLists& lists,
                        const Partial& into) const {
  std::vector<kernels::PickedParts> parts;
  for (const LevelLayout::Pick& pick : rows)
    parts.push_back(part(pick, lists, results(pick.to, pick.tokens.size())));
  merge(parts, into);
}

}  // namespace pecia::attention
