// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Bits that depend neither on the number of ranks nor on what else is in the pass (`reproducible:
/// layout`, lib/ranks/parallel/virtual_ranks.hpp). Passes are cut for layout_ranks virtual ranks, of which
/// each rank plays some. Each virtual rank's keys give one partial result of a query. These results
/// are merged along a fixed tree. Either keys go round the ring, or queries go straight to all ranks
/// in one exchange.

#include <vector>

#include "lib/model/attention/attention_path.hpp"

namespace pecia::attention {

class Invariant : public AttentionPath {
 public:
  /// `steps` must outlive this object, and be row-invariant. Its ring has `ranks` ranks in each
  /// pass, a number that divides parallel::layout_ranks.
  Invariant(const Compute& compute, AttentionSteps& steps, int ranks);

  /// Throws Unsupported unless there is one team of all instances in their order, and
  /// InvalidArgument unless each of its sequences is cut for layout_ranks and stays where it is
  /// computed. Call it before PassRows takes the teams.
  static void check(const std::vector<parallel::TeamPass>& teams, int ranks);

  /// With pass_kv the keys travel, else the queries. Which virtual ranks an instance plays must not
  /// change while it holds their keys.
  void begin_pass(const PassRows& rows, std::span<const kernels::Window> windows) override;
  void run(int64_t layer, const LayerRows& x, const Partial& to) override;
  PathTraits traits() const override { return {}; }

 private:
  /// A sequence whose keys the pass needs. When they travel, the keys of each virtual rank are
  /// padded to the most that any virtual rank has.
  struct KeySequence {
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
  int size() const { return rows_->size(); }
  int played() const { return rows_->ledger().map().virtual_ranks(); }
  std::vector<SequenceRows> rows_of_ranks(int first, int end) const;
  void plan_messages();
  void add_runs(const KvShape& shape, std::vector<kernels::KeyRun>& runs,
                parallel::SequenceId sequence, int rank, int virtual_rank, bool in_message) const;
  void add_item(const KvShape& shape, AttentionCall& call, const SequenceRows& rows,
                int64_t first_row, int rank, int virtual_rank, bool in_message) const;
  Visit visit(const KvShape& shape, const std::vector<SequenceRows>& rows, int key_rank,
              bool in_message) const;
  const Visit& visit_of(int64_t layer, int step) const {
    return visits_[steps_.cache().kind(layer)][step];
  }

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

  Compute compute_;
  AttentionSteps& steps_;

  // The pass.
  const PassRows* rows_ = nullptr;
  bool keys_travel_ = false;
  int64_t all_rows_ = 0;                    ///< of all ranks
  std::vector<KeySequence> key_sequences_;  ///< in the order of PassRows::key_sequences
  std::vector<std::vector<Visit>> visits_;  ///< by kind of layers and step; one if no keys travel

  // Workspaces. They grow and are kept.
  device::Buffer stacked_q_, all_q_;
  Buffers stacked_, all_partial_;
  std::vector<Buffers> subtrees_;  ///< by depth in the tree
  std::vector<Buffers> waiting_;   ///< partial results that wait to be merged
};

}  // namespace pecia::attention
