// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Sparse attention by levels: executes the steps of parallel/level_plan.hpp. Keys and values stay in
/// the cache of the rank that has their tokens; other ranks get copies of those that they attend.
/// Source: CSPS, "levels", "three-phase pipelining".

#include <memory>
#include <optional>
#include <vector>

#include "lib/context/level_layout.hpp"
#include "lib/context/sparse_totals.hpp"
#include "lib/context/token_importance.hpp"
#include "lib/parallel/kept_order.hpp"

namespace pecia::context {

class LevelAttention {
 public:
  /// A sequence of the pass: its tokens by rank, and the slots of this rank's own.
  struct Sequence {
    parallel::LevelSequence parts;
    std::vector<int64_t> cached_slots, row_slots;
    int64_t first_row = 0;  ///< its first row here, of q
    TokenImportance::Sequence tokens;
  };

  /// All references must outlive this object. `levels`: of the ranks of all passes. `links`: from
  /// this rank to each of them. The first and the last of the cache's layers drop nothing.
  LevelAttention(const Compute& compute, KvCache& cache, AttentionSteps& steps,
                 parallel::Levels levels, const parallel::SparseSetting& setting,
                 std::vector<comm::LinkLevel> links);

  void begin_pass(comm::Communicator& ring, std::vector<Sequence> sequences);

  /// For each layer: `start` sends what leaves; `finish` attends what has come, and merges all
  /// results into those of attention to the rank's own tokens. q is [rows, num_heads, head_dim].
  /// Collective over the ring.
  void start(int64_t layer, const TensorView& q);
  void finish(int64_t layer, const TensorView& q, const Partial& own);

  /// Weighs the tokens for the next layer, where that one drops any. Call it after each layer.
  void weigh(int64_t layer, int64_t window, const TensorView& q, const Partial& attended);

  /// What all passes have done so far.
  const SparseTotals& totals() const { return totals_; }

 private:
  struct Plan {
    parallel::LevelRule rule;
    LevelLayout layout;
    LayerCount count;
    /// Geometry nested: this rank's own kept tokens, by level − 2.
    struct Inner {
      AttentionCall call;
      int64_t keys = 0, queries = 0;  ///< entries
      std::vector<LevelLayout::Pick> cached, rows;
    };
    std::vector<Inner> inner;
  };
  /// Keys and values of one head each, with their scales in fp8.
  struct Arena {
    explicit Arena(const Compute& compute)
        : k(compute.buffer()),
          v(compute.buffer()),
          k_scales(compute.buffer()),
          v_scales(compute.buffer()) {}
    device::Buffer k, v, k_scales, v_scales;

    kernels::StoredKeys keys() const {
      return {k.data(), v.data(), k_scales.as<float>(), v_scales.as<float>()};
    }
  };
  using Orders = std::vector<std::vector<std::vector<int64_t>>>;  ///< by sequence and KV head

  int64_t kv_heads() const { return cache_.shape().num_kv_heads; }
  int64_t group() const { return steps_.num_heads() / kv_heads(); }
  bool drops(int64_t layer) const;
  const Plan& plan_of(int64_t layer) const { return drops(layer) ? sparse_ : dense_; }
  Plan make_plan(const parallel::LevelRule& rule,
                 const std::vector<parallel::LevelSequence>& parts) const;
  void plan_inner(Plan& plan) const;
  void order_tokens(int64_t layer);
  void reserve(Arena& arena, int64_t keys) const;
  void pick_keys(int64_t layer, const std::vector<LevelLayout::Pick>& picks, const Orders& orders,
                 bool cached, const Arena& to) const;
  void pick_queries(const TensorView& q, const std::vector<LevelLayout::Pick>& picks,
                    const Orders& orders, const device::Buffer& to) const;
  void add_keys(std::vector<std::span<std::byte>>& to, const Arena& arena, int64_t begin,
                int64_t count) const;
  std::span<std::byte> entries(const device::Buffer& rows, int64_t width, int64_t begin,
                               int64_t count) const;
  Partial results(const device::Buffer& out, const device::Buffer& lse, int64_t begin,
                  int64_t count) const;
  void merge(const LevelLayout::Result& result, const Orders& orders, const device::Buffer& out,
             const device::Buffer& lse, const Partial& into);
  void attend(int64_t queries, std::span<const int64_t> positions,
              std::span<const kernels::AttentionItem> items, std::span<const kernels::KeyRun> runs,
              double pairs, const Partial& to);
  void attend_inner(int64_t layer, const Plan::Inner& inner, const TensorView& q,
                    const Partial& into);

  Compute compute_;
  KvCache& cache_;
  AttentionSteps& steps_;
  parallel::Levels levels_;
  parallel::SparseSetting setting_;
  CountedShape shape_;
  TokenImportance importance_;
  SparseTotals totals_;

  // The pass.
  comm::Communicator* ring_ = nullptr;
  std::vector<Sequence> sequences_;
  Plan sparse_, dense_;

  // The layer.
  Orders cached_order_, row_order_;
  std::vector<std::unique_ptr<comm::Transfer>> arriving_;
  std::vector<int64_t> arriving_bytes_;  ///< sent by this rank in the same exchanges

  Arena keys_out_, keys_here_;
  device::Buffer queries_out_, queries_here_, outputs_here_, output_sums_, home_, home_sums_;
};

}  // namespace pecia::context
