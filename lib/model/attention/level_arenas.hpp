// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Memory in which a rank attends queries of one KV head each, and merges of the results.

#include <span>

#include "lib/model/attention/attention_steps.hpp"
#include "lib/model/attention/level_rows.hpp"
#include "lib/model/attention/token_lists.hpp"

namespace pecia::attention {

/// Queries of a KV head's group, and results for them.
class LevelArenas {
 public:
  /// All references must outlive this object.
  LevelArenas(const Compute& compute, const AttentionSteps& steps);

  /// Make room; what is there is lost.
  void reserve_queries(int64_t entries);
  void reserve_results(int64_t entries);
  /// [count, group · head_dim] fp32.
  TensorView queries(int64_t begin, int64_t count) const { return rows(queries_, begin, count); }
  /// Outputs of the same shape, and log-sums [count, group].
  Partial results(int64_t begin, int64_t count) const;

  /// Attends the first `queries` of the arena to keys in `keys`, each item with one KV head.
  /// `results` has a row for each of the queries.
  void attend(int64_t queries, std::span<const int64_t> positions,
              std::span<const kernels::AttentionItem> items, std::span<const kernels::KeyRun> runs,
              double flops, const KeyArena& keys, const Partial& results) const;

  /// A part of one KV head for the rows that the lists say.
  kernels::PickedParts part(const LevelLayout::Pick& rows, const TokenLists& lists,
                            const Partial& results) const;
  /// Merges parts, which are distinct, into results of all heads.
  void merge(std::span<const kernels::PickedParts> parts, const Partial& into) const;
  /// The same for parts whose results are in this arena, from Pick::to on.
  void merge(std::span<const LevelLayout::Pick> rows, const TokenLists& lists,
             const Partial& into) const;

  int64_t group() const { return steps_.num_heads() / steps_.cache().shape().num_kv_heads; }
  int64_t width() const { return group() * steps_.head_dim(); }

 private:
  TensorView rows(const device::Buffer& buffer, int64_t begin, int64_t count) const;

  Compute compute_;
  const AttentionSteps& steps_;
  device::Buffer queries_, outputs_, sums_;
};

}  // namespace pecia::attention
