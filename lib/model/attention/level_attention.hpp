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

#include <optional>
#include <vector>

#include "lib/model/attention/attention_path.hpp"
#include "lib/model/attention/level_exchange.hpp"
#include "lib/model/attention/level_pass_plan.hpp"
#include "lib/model/attention/level_sinks.hpp"
#include "lib/model/attention/other_heads.hpp"
#include "lib/model/attention/row_need.hpp"
#include "lib/model/attention/sparse_totals.hpp"
#include "lib/model/attention/token_importance.hpp"
#include "lib/model/attention/token_lists.hpp"
#include "lib/ranks/parallel/level_schedule.hpp"

namespace pecia::attention {

/// The ranks by whose places sequences are cut into parts.
struct LevelRanks {
  std::vector<comm::RackServerGpu> places;  ///< in the order of the parts
  /// Null: the ranks are those of the ring, and each has its part. Otherwise they have all tokens of
  /// their heads (TP), each other heads, and `kv_holders` ranks next to each other hold the same KV
  /// head.
  comm::Communicator* heads = nullptr;
  int kv_holders = 1;
  /// The first of this rank's KV heads, and all of the model; 0: the rank has all.
  int64_t first_kv_head = 0, all_kv_heads = 0;
};

class LevelAttention : public AttentionPath {
 public:
  static constexpr int64_t border = 32;  ///< rows that are always kept at a part's ends

  /// All references must outlive this object. `ranks`: of all passes; this one is `rank` of them. The
  /// first and the last of the layers that the cache stores drop nothing.
  LevelAttention(const Compute& compute, KvCache& cache, AttentionSteps& steps,
                 const LevelRanks& ranks, int rank, const parallel::SparseSetting& setting);

  /// Starts to send the layer's keys, which are in the cache. `run` does so, too, where nobody did;
  /// to begin earlier lets keys travel beside the product of queries. Collective over the ranks.
  void start_keys(int64_t layer);
  /// Attends each part here to itself while others' tokens travel, and then what has come, in the order
  /// of parallel::level_schedule. Collective over the ranks.
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
  void begin(const PassRows& rows, std::vector<SequenceParts> sequences, AttentionCall own);
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
  /// Whether this rank has all parts, of its heads.
  bool head_parallel() const { return other_heads_.has_value(); }
  bool drops(int64_t layer) const;
  /// Whether the layer says what the next one keeps.
  bool weighs(int64_t layer) const {
    return places_[layer] + 1 < num_attended_ && rules_[places_[layer] + 1].drop > 0;
  }
  const LevelPassPlan& plan_of(int64_t layer);
  LevelPass pass() const;
  void plan_pass();
  void order_keys(int64_t layer);
  void order_queries(int64_t layer);
  bool is_random() const { return setting_.selection == parallel::Selection::random; }
  void follow(const std::vector<parallel::LevelEvent>& events, int64_t layer, const LayerRows& x,
              const Partial& to);
  TokenNumbers importance_of_tokens() const;
  TokenNumbers need_of_rows() const;
  TokenNumbers any_numbers(int64_t layer);
  void attend_kept(int64_t layer, int level, const OwnAttention& inner, const TensorView& q,
                   const Partial& into);
  void attend_own(const OwnAttention& own, const KeyArena& keys, const TokenLists& lists,
                  const TensorView& q, const Partial& into);
  void learn_need(const Partial& attended);
  void count_shares(int64_t layer);

  Compute compute_;
  KvCache& cache_;
  parallel::Levels levels_;
  parallel::SparseSetting setting_;
  int rank_;
  std::vector<int64_t> places_;             ///< of layers among those that the cache stores
  int64_t num_attended_ = 0;                ///< of these
  std::vector<parallel::LevelRule> rules_;  ///< by place
  parallel::Micros micros_;
  int64_t first_kv_head_ = 0;
  CountedShape shape_;
  std::optional<OtherHeads> other_heads_;  ///< absent: the ranks have parts of the tokens
  TokenImportance importance_;
  RowNeed need_;
  SparseTotals totals_;
  LevelExchange exchange_;
  LevelSinks sinks_;
  TokenLists lists_;        ///< in the order in which levels keep the tokens
  TokenLists inner_lists_;  ///< Geometry nested: what one level keeps, in the order of the tokens

  // The pass.
  comm::Communicator* ring_ = nullptr;
  parallel::PartsHere here_;
  std::vector<SequenceParts> sequences_;
  AttentionCall own_;
  LevelPassPlan weighing_, dense_;
  std::optional<LevelPassPlan> sparse_;  ///< of the last layer that dropped anything

  // The layer.
  const LevelPassPlan* plan_ = nullptr;
  TokenNumbers by_numbers_;  ///< by which keys are listed; absent where nothing is dropped
  parallel::LevelSchedule schedule_;
  int64_t started_ = -1;  ///< the layer whose keys are under way
  device::Buffer any_;    ///< numbers of any_numbers
};

}  // namespace pecia::attention
