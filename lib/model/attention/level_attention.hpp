// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Sparse attention by levels: executes the steps of ranks/parallel/level_plan.hpp. Keys and values stay in
/// the cache of the rank that has their tokens; other ranks get copies of those that they attend.
/// Where ranks share heads and not tokens, each attends all parts by itself, and only numbers of
/// tokens travel (other_heads.hpp). So the same tokens are kept as where ranks share these.
///
/// Beyond the paper, with Geometry::disjoint: all levels keep some rows on both sides of a border
/// between ranks, since these are near each other, and the sequence's first tokens (sinks). A query
/// that the level of the sinks drops sees them all the same: each rank gets their keys and values.
/// Queries are chosen by what they need (row_need.hpp), all heads of a row alike, and keys by the
/// attention that they receive, each head by itself. With Geometry::nested both are the latter.
/// Levels and HeadLevels say which parts a pass has, and where they lie. Layers with a window go
/// another way, since levels do not know the positions of keys. Their tokens are weighed all the same.
/// Source: CSPS, "levels", "three-phase pipelining", "SP-TP"; StreamingLLM (attention sinks).

#include <memory>
#include <optional>
#include <vector>

#include "lib/model/attention/attention_path.hpp"
#include "lib/model/attention/level_layout.hpp"
#include "lib/model/attention/other_heads.hpp"
#include "lib/model/attention/row_need.hpp"
#include "lib/model/attention/sparse_totals.hpp"
#include "lib/model/attention/token_importance.hpp"
#include "lib/ranks/parallel/kept_order.hpp"

namespace pecia::attention {

/// The ranks by whose places sequences are cut into parts.
struct LevelRanks {
  std::vector<comm::RackServerGpu> places;  ///< in the order of the parts
  /// Null: the ranks are those of the ring, and each has its part. Otherwise they have all tokens of
  /// their heads (TP), each other heads, and `kv_holders` ranks next to each other hold the same KV
  /// head.
  comm::Communicator* heads = nullptr;
  int kv_holders = 1;
};

class LevelAttention : public AttentionPath {
 public:
  /// Where the tokens of a part are in this rank's memory.
  struct Tokens {
    std::vector<int64_t> cached_slots, row_slots;
    int64_t first_row = 0;  ///< of q
  };
  /// A sequence of the pass: its tokens by part, and where they are if the part is here.
  struct Sequence {
    parallel::LevelSequence parts;
    std::vector<Tokens> here;
    int sink_part = 0;  ///< the part whose first tokens are the sinks
    int64_t sinks = 0;
    TokenImportance::Sequence tokens;
  };

  static constexpr int64_t border = 32;  ///< rows that are always kept at a part's ends

  /// All references must outlive this object. `ranks`: of all passes; this one is `rank` of them. The
  /// first and the last of the cache's layers drop nothing.
  LevelAttention(const Compute& compute, KvCache& cache, AttentionSteps& steps,
                 const LevelRanks& ranks, int rank, const parallel::SparseSetting& setting);

  /// Attends each part here to itself while others' tokens travel, and then what has come. Collective
  /// over the ranks.
  void run(int64_t layer, const LayerRows& x, const Partial& to) override;
  PathTraits traits() const override { return {}; }

  /// Weighs the tokens for the next layer, where that one drops any. Call it after each layer of the
  /// pass, also after those that went another way. `attended` has the complete results.
  void weigh(int64_t layer, const TensorView& q, const Partial& attended);

  /// What all passes have done so far.
  const SparseTotals& totals() const { return totals_; }

 protected:
  int num_parts() const { return levels_.ranks(); }
  /// Begins a pass of these sequences, of which TokenImportance::Sequence::runs are not known yet.
  /// `own` attends each part here to itself.
  void begin(const PassRows& rows, std::vector<Sequence> sequences, AttentionCall own);
  /// The rows at a part's ends are always kept, where levels keep borders.
  void keep_ends(parallel::PartTokens& part) const;

  /// Sinks of a sequence, if the part that begins with them has as many tokens.
  int64_t most_sinks() const {
    constexpr int64_t by_default = parallel::SparseSetting::default_first_tokens;
    return setting_.first_tokens.value_or(keeps_borders() ? by_default : 0);
  }
  /// Whether sequences are to say which rows are at borders.
  bool keeps_borders() const {
    return setting_.rule.geometry == parallel::Geometry::disjoint && levels_.count() > 1;
  }
  AttentionSteps& steps_;

 private:
  struct Plan {
    parallel::LevelRule rule;
    LevelLayout layout;
    LayerCount count;
    /// Attention of rows here, which other ranks have no part in.
    struct Inner {
      AttentionCall call;
      int64_t keys = 0, queries = 0;                ///< entries
      std::vector<LevelLayout::Pick> cached, rows;  ///< keys
      std::vector<LevelLayout::Pick> asking;        ///< rows
      std::vector<LevelLayout::Pick> merged;        ///< those of them whose results count
    };
    std::vector<Inner> inner;  ///< Geometry nested: kept tokens of a part, by level − 2
    /// All rows of other parts than the sinks', and all sinks. Results count for rows that do not see
    /// them at any level; the others' log-sums say what these need.
    Inner sinks;
    double need_pairs = 0;  ///< of rows whose results do not count
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
  /// By `place` and KV head, or one for all heads.
  using Orders = std::vector<std::vector<std::vector<int64_t>>>;

  /// Whether this rank has all parts, of its heads.
  bool head_parallel() const { return other_heads_.has_value(); }
  void start(int64_t layer, const TensorView& q);
  void finish(int64_t layer, const TensorView& q, const Partial& own);
  int64_t kv_heads() const { return cache_.shape().num_kv_heads; }
  int64_t group() const { return steps_.num_heads() / kv_heads(); }
  size_t place(int sequence, int part) const {
    return static_cast<size_t>(sequence) * static_cast<size_t>(num_parts()) +
           static_cast<size_t>(part);
  }
  const std::vector<int64_t>& order_of(const Orders& orders,
                                       const LevelLayout::Pick& tokens) const {
    const auto& by_head = orders[place(tokens.sequence, tokens.part)];
    return by_head[by_head.size() == 1 ? 0 : tokens.head];
  }
  const Tokens& tokens_of(const LevelLayout::Pick& tokens) const {
    return sequences_[tokens.sequence].here[tokens.part];
  }
  bool drops(int64_t layer) const;
  /// Whether the layer says what the next one keeps.
  bool weighs(int64_t layer) const {
    return setting_.rule.drop > 0 && layer + 2 < cache_.shape().layers;
  }
  const Plan& plan_of(int64_t layer) const {
    return drops(layer) ? sparse_ : weighs(layer) ? weighing_ : dense_;
  }
  Plan make_plan(const parallel::LevelRule& rule,
                 const std::vector<parallel::LevelSequence>& parts) const;
  void plan_inner(Plan& plan) const;
  void plan_sinks(Plan& plan) const;
  void send_sinks(int64_t layer);
  void order_tokens(int64_t layer);
  static std::vector<float> any_importance(int64_t layer, int part, int64_t tokens);
  void order_part(int64_t layer, int sequence, int part, int64_t cached, int64_t row);
  void reserve(Arena& arena, int64_t keys) const;
  void pick_keys(int64_t layer, const std::vector<LevelLayout::Pick>& picks, const Orders& orders,
                 bool cached, const Arena& to) const;
  void pick_queries(const TensorView& q, const std::vector<LevelLayout::Pick>& picks,
                    const Orders& orders, const device::Buffer& to) const;
  void add_keys(std::vector<std::span<std::byte>>& to, const Arena& arena, int64_t begin,
                int64_t count) const;
  /// Entries [begin, begin + count) of memory with `width` numbers of `type` each.
  static std::span<std::byte> entries(const device::Buffer& rows, DType type, int64_t width,
                                      int64_t begin, int64_t count);
  /// The same of queries or results, [count, group · head_dim].
  TensorView heads_of(const device::Buffer& rows, DType type, int64_t begin, int64_t count) const;
  Partial results(const device::Buffer& out, DType type, const device::Buffer& lse, int64_t begin,
                  int64_t count) const;
  void merge(const LevelLayout::Result& result, const Orders& orders, const Partial& part,
             const Partial& into);
  /// Casts the entries of these moves from one memory to the same place in another.
  void cast(const std::vector<LevelLayout::Move>& moves, const device::Buffer& from,
            DType from_type, const device::Buffer& to, DType to_type) const;
  void attend(int64_t queries, std::span<const int64_t> positions,
              std::span<const kernels::AttentionItem> items, std::span<const kernels::KeyRun> runs,
              double pairs, const Arena& keys, const Partial& to);
  void attend_kept(int64_t layer, const Plan::Inner& inner, const TensorView& q,
                   const Partial& into);
  void attend_own(const Plan::Inner& inner, const Orders& rows, const Arena& keys,
                  const TensorView& q, const Partial& into);
  void add_groups(const LevelLayout::Pick& rows, const Orders& orders);
  const Orders& query_order() const { return keeps_borders() ? query_order_ : row_order_; }
  void learn_need(const Plan& plan, const Partial& attended);

  Compute compute_;
  KvCache& cache_;
  parallel::Levels levels_;
  parallel::SparseSetting setting_;
  int rank_;
  CountedShape shape_;
  std::optional<OtherHeads> other_heads_;  ///< absent: the ranks have parts of the tokens
  TokenImportance importance_;
  RowNeed need_;
  SparseTotals totals_;

  // The pass.
  comm::Communicator* ring_ = nullptr;
  parallel::PartsHere here_;
  std::vector<Sequence> sequences_;
  AttentionCall own_;
  Plan sparse_, weighing_, dense_;

  // The layer.
  const Plan* plan_ = nullptr;
  std::vector<int64_t> groups_;      ///< made for one call
  Orders cached_order_, row_order_;  ///< of keys
  Orders query_order_;               ///< where it is not that of keys
  std::unique_ptr<comm::Transfer> sinks_coming_;
  int64_t sink_bytes_ = 0;  ///< sent
  std::vector<std::unique_ptr<comm::Transfer>> arriving_;
  std::vector<int64_t> arriving_bytes_;  ///< sent by this rank in the same exchanges

  Arena keys_out_, keys_here_, sink_keys_;
  device::Buffer queries_out_, queries_here_, outputs_here_, output_sums_, home_, home_sums_;
  /// Queries and results as they travel, where that is not in fp32.
  device::Buffer travelling_q_, queries_in_, outputs_out_;
};

}  // namespace pecia::attention
