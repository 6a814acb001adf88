#pragma once
/// What the forward pass does between ranks that hold parts of the same weights: rows gathered
/// before a product, products summed after it, as the pass's sharding asks. With weights whole on
/// every rank all of it is nothing.
/// Sources: Megatron-LM §3 (column and row parallel layers, vocabulary-parallel embedding); CSPS
/// §3.2.1 (SP-TP).

#include <functional>
#include <vector>

#include "kernels/api/linear.hpp"
#include "lib/comm/collectives.hpp"
#include "lib/context/replica_groups.hpp"
#include "lib/device/buffer.hpp"
#include "lib/report/spans.hpp"

namespace pecia::model {

class TensorParallel {
 public:
  using Rows = std::vector<parallel::RowRange>;

  /// Both outlive this object. Every call below is collective over the rank's block.
  TensorParallel(const context::ReplicaGroups& groups, report::Recorder& recorder);

  void begin_pass(parallel::Sharding sharding, int64_t num_rows);

  /// Part of each layer's weights that this rank multiplies by; and part of the vocabulary that it
  /// holds, which is cut in every pass.
  parallel::WeightCut cut() const { return cut_; }
  parallel::WeightCut vocab_cut() const { return vocab_cut_; }
  const parallel::ShardedRows& rows() const { return rows_; }

  /// [own rows, width] → [linear rows, width], fp32 and dense: `own` itself where they are the same
  /// rows, else a copy that is valid until the next call.
  TensorView gather(const TensorView& own);

  /// hidden += Σ over the parts of the weights of this rank's linear rows times the part.
  /// `multiply` makes this rank's product, into `to` or added there. `hidden` is [own rows, width],
  /// fp32, dense; where several ranks own a row they get the same bits.
  using Multiply = std::function<void(const TensorView& to, kernels::Accumulate accumulate)>;
  void add_product(const TensorView& hidden, const Multiply& multiply);

  /// hidden = the embedding of its rows. `look_up` writes the embeddings of some rows one after the
  /// other, zeros where the token is not in this rank's part of the vocabulary.
  using LookUp = std::function<void(const Rows& rows, const TensorView& to)>;
  void embed(const TensorView& hidden, const LookUp& look_up);

  /// Rows that this rank and the others of its vocabulary group own, by rank where they differ:
  /// which logits the group makes together.
  const Rows& vocab_rows() const { return vocab_rows_; }
  /// Some of the own rows → those of all the group's ranks, counts by rank. `own` itself where all
  /// own the same.
  TensorView gather_outputs(const TensorView& own, const std::vector<int64_t>& counts);
  /// Which of `count` rows of logits this rank gets whole.
  parallel::RowRange logits_share(int64_t count) const;
  /// part [count, this rank's part of the vocabulary] → out [logits_share(count), vocab].
  void exchange_logits(const TensorView& part, const TensorView& out);
  /// `count` rows of any bytes, equally long → by rank, the rank's rows of logits_share(count).
  std::vector<std::vector<std::byte>> exchange_rows(std::span<const std::byte> rows, int64_t count);

 private:
  bool rows_differ() const;  ///< over the ranks of the vocabulary group
  comm::Communicator& vocab_group() const;
  void sum(const TensorView& hidden);
  void scatter(const TensorView& partial, const std::vector<int64_t>& counts,
               const TensorView& hidden);

  const context::ReplicaGroups& groups_;
  report::Recorder& recorder_;
  comm::Collectives tp_, block_;
  device::Buffer gathered_, partial_;
  std::vector<device::Buffer> packed_;  ///< by rank

  // The pass.
  parallel::Sharding sharding_ = parallel::Sharding::base;
  parallel::WeightCut cut_, vocab_cut_;
  parallel::ShardedRows rows_;
  Rows vocab_rows_;
};

}  // namespace pecia::model
