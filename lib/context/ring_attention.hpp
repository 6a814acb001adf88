// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Attention of a pass over a ring of instances. Keys and values stay where they were computed. It
/// executes the schedules of lib/parallel, with the same code on one rank and on many. It is exact,
/// but for Ring::levels where these drop tokens.
///
/// Sources: Context Parallelism for Scalable Million-Token Inference, Alg. 2 (pass-KV), Alg. 3
/// (pass-Q), Alg. 4 (batched pass-Q decode). broadcast_q.cpp has its own sources.

#include <map>
#include <vector>

#include "lib/context/attention_steps.hpp"
#include "lib/context/kv_ledger.hpp"
#include "lib/context/level_attention.hpp"
#include "lib/context/window_totals.hpp"
#include "lib/parallel/halo.hpp"
#include "lib/parallel/sharding.hpp"

namespace pecia::context {

class RingAttention {
 public:
  /// All references must outlive this object. `ranks` has this rank's counterparts in all instances
  /// of the replica, in their order. The stream's poll must make its transfers progress. `windows`
  /// has each layer's sliding window, 0 for none. Ring::levels needs a `sparse` setting and the
  /// ranks by whose places sequences are cut into parts. `scale` is HeadCounts::scale.
  RingAttention(comm::Communicator& ranks, const Compute& compute, KvCache& cache,
                int64_t num_heads, std::vector<int64_t> windows,
                const std::optional<parallel::SparseSetting>& sparse = {},
                const LevelRanks& level_ranks = {}, std::optional<float> scale = {});
  RingAttention(const RingAttention&) = delete;
  RingAttention& operator=(const RingAttention&) = delete;

  KvLedger& ledger() { return ledger_; }
  const KvLedger& ledger() const { return ledger_; }
  /// AttentionSteps::set_sink_logits.
  void set_sink_logits(std::vector<TensorView> logits) {
    steps_.set_sink_logits(std::move(logits));
  }
  /// What passes by levels have done; empty without a sparse setting.
  SparseTotals sparse_totals() const { return levels_ ? levels_->totals() : SparseTotals{}; }

  /// What layers with a window have sent in passes of several instances.
  const WindowTotals& window_totals() const { return window_totals_; }

  /// Begins a pass. The layers that follow work on the rows of this instance's team, in the team's
  /// ring. A rank without a team has no rows and does not call what follows. All ranks of a team
  /// give the same team and the same `number`, which is higher than in any pass before. Nothing is
  /// sent.
  void begin_pass(const std::vector<parallel::TeamPass>& teams, int64_t number);

  /// The global positions of this rank's rows, in the order of q, k, v and out.
  const std::vector<int64_t>& positions() const { return query_positions_[index_]; }
  /// The slots of the cache that have their keys and values, but not of rows that are placed: of
  /// layers that keep all tokens, or recent ones.
  const std::vector<int64_t>& slots(Keeps keeps = Keeps::all) const {
    return slots_[static_cast<size_t>(keeps)];
  }

  /// Caches k and v of this rank's rows. Then attends q to all keys of its sequences, on all ranks.
  ///   q [rows, num_heads, head_dim], k and v [rows, num_kv_heads, head_dim], out like q; fp32
  ///   (q: or query_type; out: unless attends_once), dense.
  /// The call is collective over the team's ring. It returns when `out` is complete.
  void run(int64_t layer, const TensorView& q, const TensorView& k, const TensorView& v,
           const TensorView& out);

  /// Tells whether all rows of the pass are stored as they come, so that run_fresh may be called.
  bool stores_all_rows() const;
  /// Tells whether `out` of run and run_fresh may be of a type that kernels::AttentionArgs::out takes: each
  /// row's result is that of one call.
  bool attends_once() const;
  /// Returns the type that q of `run` and of attend_part may have besides fp32, and has with less
  /// work. It is fp32 where queries travel.
  DType query_type() const {
    return team_.ring == parallel::Ring::pass_kv ? steps_.query_type() : DType::fp32;
  }
  /// Does what `run` does for heads that are as the products gave them. They are normed and turned
  /// on the way to the cache and to q_out (kernels::RotateAndStoreArgs, without slots and cache).
  void run_fresh(int64_t layer, const kernels::RotateAndStoreArgs& heads, const TensorView& out);

  /// These functions do what `run` does in parts, for a ring of one rank. plan_parts comes after
  /// begin_pass, and `rows` has the rows of each part. Then every layer calls `store` once for all
  /// rows, and attend_part for each part. q and out have all rows. attend_part reads and writes the
  /// rows of its part.
  void plan_parts(const std::vector<parallel::PassSequence>& pass,
                  const std::vector<parallel::RowRange>& rows);
  void store(int64_t layer, const TensorView& k, const TensorView& v);
  void attend_part(int64_t layer, size_t part, const TensorView& q, const TensorView& out);

 private:
  /// The keys of one rank.
  struct SequenceRuns {
    std::vector<kernels::KeyRun> runs;
    std::vector<size_t> ends;  ///< end of each sequence's runs, in the order of key_sequences_
  };
  using Pass = std::vector<parallel::PassSequence>;
  /// Rows of one sequence.
  struct Rows {
    parallel::SequenceId sequence;
    std::vector<parallel::GlobalRange> ranges;  ///< their positions
  };
  /// Queries that go straight to the ranks with keys that they see: the rows of this rank that go
  /// to each rank, the number of rows that come from each rank, and the call for the own rows and the
  /// rows that come.
  struct Visitors {
    std::vector<std::vector<int64_t>> leaving;
    std::vector<int64_t> coming;
    AttentionCall batch;
  };
  /// What travels in layers with a window, and the call for what comes.
  struct Halo {
    HaloMessages messages;
    AttentionCall call;
  };

  // Ranks are places in the team's ring.
  int size() const { return team_.size(); }
  int visiting(int step) const;
  const std::vector<parallel::TravellingTokens>* placed(parallel::SequenceId sequence) const;
  /// Tokens of a sequence at a rank, as they are attended: where they are cached, or what travels
  /// from there if the pass places them.
  int64_t held(parallel::SequenceId sequence, int rank) const;
  const std::vector<parallel::StridedRange>& ranges(parallel::SequenceId sequence, int rank) const;
  /// Those of these tokens that layers keep.
  int64_t kept(Keeps keeps, parallel::SequenceId sequence, int rank) const;
  std::vector<parallel::StridedRange> kept_ranges(Keeps keeps, parallel::SequenceId sequence,
                                                  int rank) const;
  /// What layers with this window keep.
  Keeps keeps_of(int64_t window) const {
    return window > 0 && cache_.recent().any() ? Keeps::recent : Keeps::all;
  }
  /// Calls `make` for what layers of the cache keep.
  template <typename Make>
  void for_each_keeps(const Make& make) const {
    make(Keeps::all);
    if (cache_.recent().any()) make(Keeps::recent);
  }
  static size_t at(Keeps keeps) { return static_cast<size_t>(keeps); }
  void join(const parallel::Team& team, int64_t number);
  void plan_rows(const parallel::TeamPass& own);
  void plan_placements(const parallel::TeamPass& own);
  void plan_messages(const parallel::TeamPass& own);
  void plan_recent_messages();
  std::vector<KeptTokens> kept_of(const parallel::TeamPass& own, int source) const;
  SequenceRuns runs_in_cache(Keeps keeps) const;
  SequenceRuns runs_in_message(Keeps keeps, int rank) const;
  std::span<const kernels::KeyRun> of_sequence(parallel::SequenceId sequence,
                                               const SequenceRuns& runs) const;
  std::vector<Rows> rows_at(const Pass& pass, int rank) const;
  AttentionCall call(const Pass& pass, int query_rank, const SequenceRuns& runs) const;
  void add_items(AttentionCall& call, const std::vector<Rows>& rows,
                 const SequenceRuns& runs) const;

  void attend(int64_t layer, const TensorView& q, const TensorView& k, const TensorView& v,
              const TensorView& out);
  int64_t whole_ring_bytes(const Pass& pass) const;
  void count_window(int64_t layer, int64_t sent_before);
  void run_pass_kv(int64_t layer, const TensorView& q, const TensorView& k, const TensorView& v,
                   const TensorView& out);
  void run_pass_q(int64_t layer, const TensorView& q, const TensorView& out);

  // halo.cpp
  void plan_halos(const parallel::TeamPass& own);
  std::vector<parallel::HaloSequence> halo_sequences(const Pass& pass) const;
  HaloMessages halo_messages(Keeps keeps, const parallel::Halo& plan) const;
  SequenceRuns runs_that_come(const std::vector<parallel::HaloSequence>& sequences,
                              const parallel::Halo& plan) const;
  void run_halo(int64_t layer, const Halo& halo, const TensorView& q, const TensorView& out);

  // ring_levels.cpp
  std::vector<LevelAttention::Sequence> level_sequences(const Pass& pass) const;
  void keep_borders(const parallel::PassSequence& of, LevelAttention::Sequence& sequence) const;
  static void keep_ends(parallel::PartTokens& part);
  void add_level_runs(const Pass& pass, std::vector<LevelAttention::Sequence>& sequences) const;
  void run_levels(int64_t layer, const TensorView& q, const TensorView& k, const TensorView& v,
                  const TensorView& out);

  // home_levels.cpp
  LevelAttention::Sequence cut_into_parts(const parallel::PassSequence& of, int64_t first_row);
  std::vector<LevelAttention::Sequence> home_sequences(const Pass& pass);

  // broadcast_q.cpp
  std::vector<parallel::IndexRun> rows_that_see(int64_t window, const Rows& rows, int rank) const;
  Visitors visitors(const Pass& pass, int64_t window) const;
  void plan_visitors(const Pass& pass);
  void run_broadcast_q(int64_t layer, const Visitors& visitors, const TensorView& q,
                       const TensorView& out);

  comm::Communicator& ranks_;
  Compute compute_;
  KvCache& cache_;
  AttentionSteps steps_;
  std::vector<int64_t> windows_;  ///< by layer
  std::optional<LevelAttention> levels_;
  KvLedger ledger_;
  WindowTotals window_totals_;

  // The pass.
  parallel::Team team_;
  int index_ = 0;                              ///< place of this instance in the team
  std::unique_ptr<comm::Communicator> group_;  ///< group of a team that is not all instances
  comm::Communicator* ring_ = nullptr;         ///< the team's ring
  std::vector<std::vector<int64_t>> query_positions_;  ///< by rank
  std::array<std::vector<int64_t>, 2>
      slots_;  ///< slots of this rank's rows that stay here, by Keeps
  std::vector<parallel::RowRange> stored_rows_;      ///< these rows
  std::vector<parallel::SequenceId> key_sequences_;  ///< sequences with keys that it needs, sorted
  std::map<parallel::SequenceId, std::vector<parallel::TravellingTokens>> placed_;
  std::array<std::vector<AttentionCall>, 2> visits_;  ///< by Keeps and step
  std::map<int64_t, Visitors> visitors_;              ///< by window, where queries go straight
  std::map<int64_t, Halo> halos_;  ///< by window; keys of other layers go round the ring
  int64_t whole_ring_bytes_ = 0;   ///< that this rank sends in a layer without a window
  std::array<std::vector<AttentionCall>, 2> parts_;  ///< by Keeps and part
  AttentionCall within_parts_;                       ///< by levels at home: each part to itself
  std::vector<parallel::RowRange> part_rows_;

  // Workspaces. They grow and are kept.
  device::Buffer travelling_[2], lse_, batch_q_;
  AttentionSteps::Buffers batch_part_;
  /// By rank: the outputs of its queries over this rank's keys, and the outputs of this rank's
  /// queries over its keys.
  std::vector<AttentionSteps::Buffers> away_, home_;
};

}  // namespace pecia::context
