// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Attention of a pass on all ranks of a replica. Heads are exchanged inside each SP × TP block
/// (Ulysses). Then every rank attends its shard of the heads over the ring of its CP group, each
/// layer in the way that its window and the pass's team ask for (attention_path.hpp). Keys and
/// values stay where they were computed. A ring over blocks is USP.

#include "lib/model/attention/broadcast_q.hpp"
#include "lib/model/attention/halo.hpp"
#include "lib/model/attention/head_exchange.hpp"
#include "lib/model/attention/invariant.hpp"
#include "lib/model/attention/key_copies.hpp"
#include "lib/model/attention/level_attention.hpp"
#include "lib/model/attention/pass_kv.hpp"
#include "lib/model/attention/pass_q.hpp"
#include "lib/model/attention/replica_groups.hpp"
#include "lib/model/attention/row_parts.hpp"
#include "lib/model/attention/window_totals.hpp"
#include "lib/ranks/parallel/attend_parts.hpp"

namespace pecia::attention {

/// Heads of the whole model.
struct HeadCounts {
  int64_t num_heads = 0, num_kv_heads = 0;
  std::optional<float> scale = {};      ///< what multiplies scores; absent: 1/sqrt(head_dim)
  std::vector<int64_t> of_layers = {};  ///< KV heads by layer; empty: num_kv_heads in each
  std::optional<parallel::LatentHead> latent =
      {};  ///< of latent attention, whose cache has latents

  int64_t kv_heads(int64_t layer) const {
    return of_layers.empty() ? num_kv_heads : of_layers.at(layer);
  }
};

class Attention {
 public:
  /// All references must outlive this object. `cache` holds the rank's shard of the KV heads: shard
  /// kv_shard of SP · TP. The stream's poll must make the ring's transfers progress. `windows` has
  /// each layer's sliding window, 0 for none. With `row_invariant`, a row's bits depend neither on
  /// the pass nor on the number of ranks (Invariant). Passes by levels need a `sparse` setting.
  Attention(const ReplicaGroups& groups, HeadCounts heads, std::vector<kernels::Window> windows,
            const Compute& compute, KvCache& cache,
            kernels::RowInvariant row_invariant = kernels::RowInvariant::no,
            const std::optional<parallel::SparseSetting>& sparse = {});
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  /// Sets each layer's sink logits (AttentionSteps::set_sink_logits), of all heads of the model. The
  /// memory must outlive this object.
  void set_sink_logits(const std::vector<TensorView>& logits);

  /// Returns the shard of this rank in a layer with this number of KV heads.
  static parallel::HeadShard held_heads(const parallel::BlockPlace& place, int64_t num_heads,
                                        int64_t num_kv_heads);

  /// The sequences of the replica, and what this rank's cache holds of them.
  KvLedger& ledger() { return ledger_; }
  const KvLedger& ledger() const { return ledger_; }

  /// Keys of prompts that others answer, which leave after each layer of a pass that begins its copies.
  KeyCopies& copies() { return copies_; }

  /// What passes by levels have done at this rank; empty without a sparse setting.
  SparseTotals sparse_totals() const { return levels_ ? levels_->totals() : SparseTotals{}; }

  /// What layers with a window have sent in passes of several instances; nothing with
  /// `row_invariant`, where windows spare no bytes.
  const WindowTotals& window_totals() const { return window_totals_; }

  /// Begins a pass. The layers that follow work on the rows of this instance's team, in the team's
  /// ring. A rank without a team has no rows and does not call what follows. All ranks of a team
  /// give the same team and the same `number`, which is higher than in any pass before. Nothing is
  /// sent. Throws what PassRows and, with `row_invariant`, Invariant::check throw.
  void begin_pass(const std::vector<parallel::TeamPass>& teams, int64_t number);

  parallel::Sharding sharding() const { return sharding_; }
  /// Whether the pass attends keys and values of heads that are made of cached latents
  /// (ranks/parallel/latent_rule.hpp). Then `run` takes queries of LatentHead::query_dim and gives
  /// value_dim numbers a head, and needs expand_with before. Never with `row_invariant`, nor where
  /// the cache's type is neither fp32 nor bf16.
  bool expands_latents() const { return expands_latents_; }
  /// Says who makes the heads of the layers that follow, not more than `most_bytes` at a time.
  void expand_with(LatentExpander& expander, int64_t most_bytes) {
    const int64_t first = held_heads(groups_.place, heads_.num_heads, heads_.num_kv_heads).q.begin;
    steps_.expand_with({&expander, first, most_bytes});
  }
  /// Tells whether the pass's ops may be held back as a step (kernels::Step). By levels they may
  /// not: no other pass has the same sizes, so no graph of it would come again (README.md). Nor may
  /// they where keys leave after each layer.
  bool may_be_step() const { return !by_levels_ && !copies_.sends(); }
  /// The most rows that a block of the team has: the same on all its ranks.
  int64_t most_rows() const;
  /// The global positions of all rows of this rank's block. rows() says which rows are the rank's.
  const std::vector<int64_t>& positions() const { return pass_.positions(); }
  /// The slots of this rank's cache that have the keys and values of these rows, but not of rows
  /// that are placed: in layers that keep all tokens, or recent ones.
  const std::vector<int64_t>& slots(Retention retention = Retention::all) const {
    return pass_.slots(retention);
  }
  const parallel::ShardedRows& rows() const { return rows_; }
  /// The rows of the pass by sequence, and the ring of its team, which mixers without keys use.
  const PassRows& pass() const { return pass_; }
  comm::Communicator& ring() const { return team_ring_ ? *team_ring_ : *groups_.ring; }

  /// Tells whether run_fresh may take the place of start_keys and run in this pass: nothing is
  /// exchanged, and all rows are stored as they come, keys and values alike, each layer's in itself.
  bool takes_fresh_heads() const {
    return !exchanges_ && traits_.stores_all_rows && cache_.shape().stores_values() &&
           !shares_keys_;
  }
  /// Tells whether `out` of run and run_fresh may be of a type that kernels::AttentionArgs::out
  /// takes: each row's result is that of one call and is not exchanged.
  bool attends_once() const { return !exchanges_ && traits_.attends_once; }
  /// Returns the type that q of `run` may have besides fp32, and has with less work and fewer bytes
  /// of messages. It is the same on all ranks of the block, and so must the choice between the two be.
  DType query_type() const { return traits_.query_type; }
  /// Does what start_keys and run do for heads that are as the products gave them, where
  /// takes_fresh_heads says so. They are normed and turned on the way to the cache and to q_out
  /// (kernels::RotateAndStoreArgs, without slots and cache).
  void run_fresh(int64_t layer, const kernels::RotateAndStoreArgs& heads, const TensorView& out);

  /// Begins a layer, before start_keys; `run` does so, too. Needed only where layers' heads differ, and
  /// where keys of a pass by levels are to leave before queries are there.
  void begin_layer(int64_t layer);

  /// Takes the keys and values of a layer and begins their exchange. Not for a layer that attends
  /// what another one stores (KvCache::source). `run` must follow and still
  /// needs them. The rows are rows().linear. The heads are the heads of weight_cut. k and v are
  /// [rows, KV heads, head_dim], fp32, dense; v is absent where values are the beginnings of keys.
  void start_keys(const TensorView& k, const TensorView& v);

  /// Whether each layer may be attended by run_block: a pass with several blocks of rows (rows()), where
  /// nothing is exchanged and this rank has all keys of its heads. Then sums and gathers of blocks
  /// travel while others are attended.
  bool runs_blocks() const { return runs_blocks_; }
  /// Does what start_keys and run do, for the rows of one block; blocks come in their order. `x` and
  /// `out` have the rows of all blocks as start_keys and run take them, of which those of this block
  /// are read and written.
  void run_block(int64_t layer, int block, const LayerRows& x, const TensorView& out);

  /// Caches the layer's keys and values. Then attends q to all keys of its sequences, on all ranks.
  /// The rows and heads are the same as for start_keys. q is [rows, query heads, head_dim]
  /// and out [rows, query heads, value_dim], dense; q is fp32 or query_type, and out is fp32 unless attends_once. The call is
  /// collective over the team. It returns when `out` is complete.
  void run(int64_t layer, const TensorView& q, const TensorView& out);

 private:
  bool gains_by_expanding() const;
  void prepare_layer(int64_t layer);
  void join(int64_t number);
  AttentionPath& path_of(kernels::Window window);
  void begin_paths();
  void begin_exchange();
  void begin_blocks();
  /// Relays keys between servers where that saves time.
  void choose_routes(std::span<const int> servers, int64_t head_dim, ExchangePlan& plan) const;
  ExchangePlan exchange_plan(int64_t num_kv_heads) const;
  HeadExchange::Keys rows_to_attend(int64_t layer, const HeadExchange::Keys& own);
  void store(int64_t layer, const TensorView& k, const TensorView& v);
  void store_rows(int64_t layer, parallel::RowRange rows, const TensorView& k, const TensorView& v,
                  int64_t first_slot);
  void attend(int64_t layer, const LayerRows& x, const TensorView& out);
  void store_and_attend(int64_t layer, const LayerRows& x, const TensorView& out);
  void run_exchanged(int64_t layer, const TensorView& q, const TensorView& out);

  const ReplicaGroups& groups_;
  HeadCounts heads_;
  KvCache& cache_;
  AttentionSteps steps_;
  KvLedger ledger_;
  KeyCopies copies_;
  PassKv pass_kv_;
  PassQ pass_q_;
  BroadcastQ broadcast_q_;
  Halo halo_;
  std::unique_ptr<LevelAttention> levels_;  ///< null without a sparse setting
  std::unique_ptr<Invariant> invariant_;    ///< null unless row_invariant; else all layers take it
  RowParts row_parts_;
  HeadExchange exchange_;
  bool shares_keys_ = false;  ///< some layer attends what another one stores
  /// By kind of layers: rows whose keys are not stored here, for layers that attend them later.
  struct PlacedRows {
    device::Buffer k_memory, v_memory;
    HeadExchange::Keys rows = {};
  };
  std::vector<PlacedRows> placed_rows_;
  device::Buffer attended_;
  WindowTotals window_totals_;

  // The pass.
  PassRows pass_;
  std::unique_ptr<comm::Communicator> team_ring_;    ///< of a team that is not all instances
  std::map<kernels::Window, AttentionPath*> paths_;  ///< by window
  PathTraits traits_;                                ///< what all its paths allow
  bool by_levels_ = false, expands_latents_ = false;
  int64_t bytes_without_window_ = 0;  ///< AttentionPath::bytes_without_window
  parallel::Sharding sharding_ = parallel::Sharding::base;
  parallel::ShardedRows rows_;
  bool exchanges_ = false;  ///< false: every row is here already
  bool runs_blocks_ = false;
  comm::Communicator* exchange_group_ = nullptr;
  std::vector<ExchangePlan> exchange_plans_;  ///< by kind of layers
  int exchanged_kind_ = 0;                    ///< of the plan that `exchange_` has
  std::vector<parallel::AttendPart> parts_;

  HeadExchange::Keys keys_;  ///< the layer's keys, if they are not exchanged
  int64_t begun_ = -1;       ///< the layer that begin_layer named, until it runs
  int64_t stored_ = -1;      ///< the layer whose keys start_keys has stored
};

}  // namespace pecia::attention
