// SPDX-License-Identifier: Apache-2.0
#pragma once
/// RingAttention whose bits do not depend on the number of ranks nor on what else is in the pass
/// (`reproducible: layout`, lib/parallel/virtual_ranks.hpp). Each virtual rank's keys give one
/// partial result of a query, and these are merged along a fixed tree. The same passes, cut for
/// layout_ranks virtual ranks.

#include <vector>

#include "lib/context/attention_steps.hpp"
#include "lib/context/ring_attention.hpp"

namespace pecia::context {

class InvariantAttention {
 public:
  /// As RingAttention; the number of `ranks` divides parallel::layout_ranks.
  InvariantAttention(comm::Communicator& ranks, const Compute& compute, KvCache& cache,
                     int64_t num_heads, std::vector<int64_t> windows);
  InvariantAttention(const InvariantAttention&) = delete;
  InvariantAttention& operator=(const InvariantAttention&) = delete;

  /// Its virtual ranks are those that this instance plays.
  KvLedger& ledger() { return ledger_; }
  const KvLedger& ledger() const { return ledger_; }

  /// Every PassSequence has virtual_ranks = layout_ranks. Keys travel with pass_kv, else the
  /// queries do: straight to all ranks, in one exchange. Throws Unsupported unless there is one
  /// team of all instances in their order: which virtual ranks an instance plays must not change
  /// while it holds their keys.
  void begin_pass(const std::vector<parallel::TeamPass>& teams);
  const std::vector<int64_t>& positions() const { return own_.positions; }
  const std::vector<int64_t>& slots() const { return slots_; }
  void run(int64_t layer, const TensorView& q, const TensorView& k, const TensorView& v,
           const TensorView& out);

 private:
  using Pass = std::vector<parallel::PassSequence>;

  /// Some ranks' rows of the pass, and which of them are whose.
  struct QueryRows {
    struct Part {
      parallel::SequenceId sequence;
      int64_t first_row, num_rows;
      std::vector<parallel::GlobalRange> ranges;  ///< of positions
    };
    std::vector<int64_t> positions;
    std::vector<Part> parts;
    int64_t count() const { return static_cast<int64_t>(positions.size()); }
  };
  /// A sequence whose keys the pass needs. Travelling, those of each virtual rank are padded to the
  /// most that any has.
  struct Unit {
    parallel::SequenceId sequence;
    int64_t padded_tokens;
    int64_t offset;  ///< in tokens, among the message's
  };
  /// Queries against the keys of one rank: a call for each virtual rank, or one for all of them, on
  /// as many copies of the queries.
  struct Visit {
    std::vector<AttentionCall> calls;
    bool stacked;
  };

  // A virtual rank is counted among those of one rank.
  int size() const { return ring_.size(); }
  int played() const { return ledger_.map().virtual_ranks(); }
  QueryRows rows_of_ranks(const Pass& pass, int first, int end) const;
  void plan_slots(const Pass& pass);
  void plan_units(const Pass& pass);
  void add_runs(std::vector<kernels::KeyRun>& runs, parallel::SequenceId sequence, int rank,
                int virtual_rank, bool in_message) const;
  void add_items(AttentionCall& call, const QueryRows& rows, int rank, int virtual_rank,
                 bool in_message) const;
  Visit visit(const QueryRows& rows, int key_rank, bool in_message) const;

  void attend_rank(int64_t layer, const Visit& visit, const TensorView& q,
                   const kernels::StoredKeys& keys, const Partial& to);
  void attend_subtree(int64_t layer, const Visit& visit, const TensorView& q,
                      const kernels::StoredKeys& keys, int first, int count, size_t depth,
                      const Partial& to);
  void attend_stacked(int64_t layer, const Visit& visit, const TensorView& q,
                      const kernels::StoredKeys& keys, const Partial& to);
  void pass_keys(int64_t layer, const TensorView& q, const Partial& to);
  void pass_queries(int64_t layer, const TensorView& q, const Partial& to);

  using Buffers = AttentionSteps::Buffers;

  comm::Communicator& ring_;
  Compute compute_;
  KvCache& cache_;
  AttentionSteps steps_;
  KvLedger ledger_;

  // The pass.
  bool keys_travel_ = false;
  QueryRows own_, all_;          ///< all_: of every rank, one after the other; when queries travel
  std::vector<int64_t> counts_;  ///< rows by rank
  std::vector<int64_t> slots_;   ///< of this rank's rows
  std::vector<Unit> units_;      ///< by sequence
  std::vector<Visit> visits_;    ///< by step, or one

  // Workspaces, grown and kept.
  device::Buffer stacked_q_, all_q_;
  Buffers stacked_, all_partial_;
  device::Buffer lse_;
  std::vector<Buffers> subtrees_;  ///< by depth
  std::vector<Buffers> waiting_;   ///< by rank: whose keys gave the partial result
};

}  // namespace pecia::context
