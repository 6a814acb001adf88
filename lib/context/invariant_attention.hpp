// SPDX-License-Identifier: Apache-2.0
#pragma once
/// RingAttention whose bits depend neither on the number of ranks nor on what else is in the pass
/// (`reproducible: layout`, lib/parallel/virtual_ranks.hpp). Each virtual rank's keys give one
/// partial result of a query. These results are merged along a fixed tree. The passes are the same,
/// but they are cut for layout_ranks virtual ranks.

#include <vector>

#include "lib/context/attention_steps.hpp"
#include "lib/context/ring_attention.hpp"

namespace pecia::context {

class InvariantAttention {
 public:
  /// The arguments have the same meaning as for RingAttention. The number of `ranks` must divide
  /// parallel::layout_ranks.
  InvariantAttention(comm::Communicator& ranks, const Compute& compute, KvCache& cache,
                     int64_t num_heads, std::vector<int64_t> windows,
                     std::optional<float> scale = {});
  InvariantAttention(const InvariantAttention&) = delete;
  InvariantAttention& operator=(const InvariantAttention&) = delete;

  /// The ledger's virtual ranks are the ones that this instance plays.
  KvLedger& ledger() { return ledger_; }
  const KvLedger& ledger() const { return ledger_; }
  /// AttentionSteps::set_sink_logits.
  void set_sink_logits(std::vector<TensorView> logits) {
    steps_.set_sink_logits(std::move(logits));
  }

  /// Begins a pass. Every PassSequence must have virtual_ranks = layout_ranks. With pass_kv the
  /// keys travel. Else the queries travel straight to all ranks, in one exchange. Throws
  /// Unsupported unless there is one team of all instances in their order. Which virtual ranks an
  /// instance plays must not change while it holds their keys. `number` is not used.
  void begin_pass(const std::vector<parallel::TeamPass>& teams, int64_t number);
  const std::vector<int64_t>& positions() const { return own_.positions; }
  const std::vector<int64_t>& slots() const { return slots_; }
  void run(int64_t layer, const TensorView& q, const TensorView& k, const TensorView& v,
           const TensorView& out);

 private:
  using Pass = std::vector<parallel::PassSequence>;

  /// The rows of some ranks in the pass. Each part has the rows of one sequence.
  struct QueryRows {
    struct Part {
      parallel::SequenceId sequence;
      int64_t first_row, num_rows;
      std::vector<parallel::GlobalRange> ranges;  ///< ranges of positions
    };
    std::vector<int64_t> positions;
    std::vector<Part> parts;
    int64_t count() const { return static_cast<int64_t>(positions.size()); }
  };
  /// A sequence whose keys the pass needs. When they travel, the keys of each virtual rank are
  /// padded to the most that any virtual rank has.
  struct KeySequence {
    parallel::SequenceId sequence;
    int64_t padded_tokens;
    int64_t offset;  ///< offset among the tokens of the message
  };
  /// Queries against the keys of one rank. `merged`: one call for all virtual ranks, of which the
  /// backend merges the results. `stacked`: one call, with a copy of the queries for each virtual
  /// rank. `leaves`: a call for each virtual rank.
  struct Visit {
    enum class Calls { merged, stacked, leaves };
    Calls kind;
    std::vector<AttentionCall> calls;
  };

  // A virtual rank is counted among the virtual ranks of one rank.
  int size() const { return ring_.size(); }
  int played() const { return ledger_.map().virtual_ranks(); }
  QueryRows rows_of_ranks(const Pass& pass, int first, int end) const;
  void plan_slots(const Pass& pass);
  void plan_key_sequences(const Pass& pass);
  void add_runs(std::vector<kernels::KeyRun>& runs, parallel::SequenceId sequence, int rank,
                int virtual_rank, bool in_message) const;
  void add_item(AttentionCall& call, const QueryRows::Part& part, int64_t first_row, int rank,
                int virtual_rank, bool in_message) const;
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
  QueryRows own_, all_;  ///< all_: rows of every rank, one after the other, if queries travel
  std::vector<int64_t> counts_;             ///< rows by rank
  std::vector<int64_t> slots_;              ///< slots of this rank's rows
  std::vector<KeySequence> key_sequences_;  ///< in the order of the sequences
  std::vector<Visit> visits_;               ///< by step; one if no keys travel

  // Workspaces. They grow and are kept.
  device::Buffer stacked_q_, all_q_;
  Buffers stacked_, all_partial_;
  device::Buffer lse_;
  std::vector<Buffers> subtrees_;  ///< by depth in the tree
  std::vector<Buffers> waiting_;   ///< partial results that wait to be merged
};

}  // namespace pecia::context
