// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Attention of a pass on all ranks of a replica. Heads are exchanged inside each SP × TP block
/// (Ulysses). Then every rank attends its shard of the heads over the ring of its CP group. A ring
/// over blocks is USP.

#include <variant>

#include "lib/context/head_exchange.hpp"
#include "lib/context/invariant_attention.hpp"
#include "lib/context/replica_groups.hpp"
#include "lib/context/ring_attention.hpp"
#include "lib/parallel/attend_parts.hpp"

namespace pecia::context {

/// Heads of the whole model.
struct HeadCounts {
  int64_t num_heads = 0, num_kv_heads = 0;
  std::optional<float> scale = {};  ///< what multiplies scores; absent: 1/sqrt(head_dim)
};

class Attention {
 public:
  /// All references must outlive this object. `cache` holds the rank's shard of the KV heads: shard
  /// kv_shard of SP · TP. `windows` has each layer's sliding window, 0 for none. With
  /// `row_invariant`, a row's bits depend neither on the pass nor on the number of ranks. Passes
  /// are then cut for virtual ranks. Passes by levels need a `sparse` setting.
  Attention(const ReplicaGroups& groups, HeadCounts heads, std::vector<int64_t> windows,
            const Compute& compute, KvCache& cache,
            kernels::RowInvariant row_invariant = kernels::RowInvariant::no,
            const std::optional<parallel::SparseSetting>& sparse = {});

  /// Sets each layer's sink logits (AttentionSteps::set_sink_logits), of all heads of the model. The
  /// memory must outlive this object.
  void set_sink_logits(const std::vector<TensorView>& logits);

  /// Returns the KV shard of this rank.
  static parallel::HeadShard held_heads(const parallel::BlockPlace& place, HeadCounts heads);

  /// The sequences of the replica, and what this rank's cache holds of them.
  KvLedger& ledger() {
    return std::visit(
        [](auto& ring) -> auto& { return ring.ledger(); }, ring_);
  }
  const KvLedger& ledger() const {
    return std::visit(
        [](const auto& ring) -> auto& { return ring.ledger(); }, ring_);
  }

  /// What passes by levels have done at this rank; empty without a sparse setting.
  SparseTotals sparse_totals() const {
    const auto* ring = std::get_if<RingAttention>(&ring_);
    return ring != nullptr ? ring->sparse_totals() : SparseTotals{};
  }

  /// What layers with a window have sent; nothing with `row_invariant`, where windows spare no bytes.
  WindowTotals window_totals() const {
    const auto* ring = std::get_if<RingAttention>(&ring_);
    return ring != nullptr ? ring->window_totals() : WindowTotals{};
  }

  /// Begins a pass. The layers that follow work on the rows of this instance's team. A rank without
  /// a team has no rows and does not call what follows. All ranks of a team give the same team and
  /// the same `number`, which is higher than in any pass before.
  void begin_pass(const std::vector<parallel::TeamPass>& teams, int64_t number);

  parallel::Sharding sharding() const { return sharding_; }
  /// Tells whether the pass's ops may be held back as a step (kernels::Step). By levels they may
  /// not. The rows to which results belong change from layer to layer, so the arrays that name them
  /// are gone before the step would be done.
  bool may_be_step() const { return may_be_step_; }
  /// The global positions of all rows of this rank's block. rows() says which rows are the rank's.
  const std::vector<int64_t>& positions() const {
    return std::visit(
        [](const auto& ring) -> auto& { return ring.positions(); }, ring_);
  }
  /// The slots of this rank's cache that have the keys and values of these rows, in layers that
  /// keep all tokens, or recent ones.
  const std::vector<int64_t>& slots(Keeps keeps = Keeps::all) const {
    if (const auto* ring = std::get_if<RingAttention>(&ring_)) return ring->slots(keeps);
    PECIA_CHECK(keeps == Keeps::all, "virtual ranks keep all tokens");
    return std::get<InvariantAttention>(ring_).slots();
  }
  const parallel::ShardedRows& rows() const { return rows_; }

  /// Tells whether run_fresh may take the place of start_keys and run in this pass: nothing is
  /// exchanged, and all rows are stored as they come.
  bool takes_fresh_heads() const {
    const auto* ring = std::get_if<RingAttention>(&ring_);
    return ring != nullptr && !exchanges_ && ring->stores_all_rows();
  }
  /// Tells whether `out` of run and run_fresh may be of a type that kernels::AttentionArgs::out
  /// takes: each row's result is that of one call and is not exchanged.
  bool attends_once() const {
    const auto* ring = std::get_if<RingAttention>(&ring_);
    return ring != nullptr && !exchanges_ && ring->attends_once();
  }
  /// Returns the type that q of `run` may have besides fp32, and has with less work and fewer bytes
  /// of messages. It is the same on all ranks of the block, and so must the choice between the two be.
  DType query_type() const {
    const auto* ring = std::get_if<RingAttention>(&ring_);
    return ring != nullptr ? ring->query_type() : DType::fp32;
  }
  /// RingAttention::run_fresh, where takes_fresh_heads says so.
  void run_fresh(int64_t layer, const kernels::RotateAndStoreArgs& heads, const TensorView& out) {
    std::get<RingAttention>(ring_).run_fresh(layer, heads, out);
  }

  /// Takes the keys and values of a layer and begins their exchange. `run` must follow and still
  /// needs them. The rows are rows().linear. The heads are the heads of weight_cut. k and v are
  /// [rows, KV heads, head_dim], fp32, dense.
  void start_keys(const TensorView& k, const TensorView& v);

  /// Caches the layer's keys and values. Then attends q to all keys of its sequences, on all ranks.
  /// The rows and heads are the same as for start_keys. q and out are [rows, query heads,
  /// head_dim], dense; q is fp32 or query_type, and out is fp32 unless attends_once. The call is
  /// collective over the team. It returns when `out` is complete.
  void run(int64_t layer, const TensorView& q, const TensorView& out);

 private:
  const ReplicaGroups& groups_;
  HeadCounts heads_;
  KvCache& cache_;
  void attend(int64_t layer, const TensorView& q, const HeadExchange::Keys& keys,
              const TensorView& out);

  using AnyRing = std::variant<RingAttention, InvariantAttention>;
  AnyRing ring_;
  HeadExchange exchange_;
  device::Buffer attended_;

  // The pass.
  parallel::Sharding sharding_ = parallel::Sharding::base;
  bool may_be_step_ = true;
  parallel::ShardedRows rows_;
  bool exchanges_ = false;  ///< false: every row is here already
  std::vector<parallel::AttendPart> parts_;
  RingAttention* in_parts_ = nullptr;  ///< the ring, if it attends more than one part

  HeadExchange::Keys keys_;  ///< the layer's keys, if they are not exchanged
};

}  // namespace pecia::context
