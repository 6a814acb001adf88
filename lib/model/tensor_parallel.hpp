// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What the forward pass does between ranks that hold parts of the same weights: rows gathered
/// before a product, products summed after it, as the pass's sharding asks. Where every rank has
/// whole weights, every call is a no-op.
///
/// A pass's rows go through it block by block (parallel::row_blocks), so that a sum or a gather of
/// one block travels while others are multiplied: for each block in turn add_product, then, some
/// products later, wait_sum, then start_gather and wait_gather, then the next add_product. Every
/// rank starts them in the same order, whatever arrives first.
/// Sources: Megatron-LM §3 (column and row parallel layers, vocabulary-parallel embedding); CSPS
/// §3.2.1 (SP-TP).

#include <functional>
#include <memory>
#include <vector>

#include "lib/comm/collectives.hpp"
#include "lib/context/compute.hpp"
#include "lib/context/replica_groups.hpp"

namespace pecia::model {

class TensorParallel {
 public:
  using Rows = std::vector<parallel::RowRange>;

  /// All outlive this object. Every call below is collective over the rank's block.
  /// `row_invariant`: sums over the ranks are those of LinearArgs::splits, wherever the ranks are.
  TensorParallel(const context::ReplicaGroups& groups, const context::Compute& compute,
                 kernels::RowInvariant row_invariant);

  void begin_pass(parallel::Sharding sharding, int64_t num_rows);

  /// Part of each layer's weights that this rank multiplies by; and part of the vocabulary that it
  /// holds, which is cut in every pass.
  parallel::WeightCut cut() const { return cut_; }
  parallel::WeightCut vocab_cut() const { return vocab_cut_; }
  const parallel::ShardedRows& rows() const { return rows_; }

  int num_blocks() const { return static_cast<int>(rows_.blocks.size()); }
  /// Of [linear rows, …]: those of a block.
  TensorView block_of(const TensorView& all, int block) const;
  /// Of [own rows, …], one block after the other: those of a block.
  TensorView own_of(const TensorView& own, int block) const;
  /// How many products of other blocks to enqueue between a block's add_product and its wait_sum,
  /// of the num_blocks − 1 that there are before its next one: half of them where a gather follows,
  /// which then has the other half.
  int products_before_sum() const;

  /// hidden += Σ over the parts of the weights of the block's rows times the part: started here,
  /// done after wait_sum. `multiply` makes this rank's product of all the block's rows, into `to`
  /// or, where the weights are whole, added there. `hidden` [own rows of the block, width], fp32,
  /// dense, untouched till then; where several ranks own a row they get the same bits.
  using Multiply = std::function<void(const TensorView& to, kernels::Accumulate accumulate)>;
  void add_product(int block, const TensorView& hidden, const Multiply& multiply);
  /// Returns at once where nothing is under way.
  void wait_sum(int block);

  /// Fills in the block's rows of `all` [linear rows, width], fp32, dense, which has the own ones.
  void start_gather(int block, const TensorView& all);
  void wait_gather(int block);

  /// Moves what is under way on; for polls while computing.
  void progress();

  /// hidden = the embedding of the own rows, each block done after its wait_sum. `look_up` writes
  /// the embeddings of some rows one after the other, zeros where the token is not in this rank's
  /// part of the vocabulary.
  using LookUp = std::function<void(const Rows& rows, const TensorView& to)>;
  void embed(const TensorView& hidden, const LookUp& look_up);

  /// Rows of this rank and of the others of its vocabulary group, by rank where they differ: which
  /// logits the group makes together.
  const std::vector<parallel::ShardedRows>& vocab_rows() const { return vocab_rows_; }
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
  /// A transfer under way, and how the wait for it is recorded; a sum of products is then added to
  /// the hidden states.
  struct UnderWay {
    std::unique_ptr<comm::Transfer> transfer;
    const char* name = nullptr;
    int64_t bytes = 0;
    TensorView sum = {}, hidden = {};
  };
  void wait(UnderWay& one);
  bool gathers() const { return sharding_ == parallel::Sharding::sp_tp && cut_.count > 1; }
  void start_sum(int block, const TensorView& partial);
  void start_scatter(int block, const TensorView& partial, const TensorView& own);

  const context::ReplicaGroups& groups_;
  context::Compute compute_;
  std::unique_ptr<comm::Collectives> tp_, block_;
  device::Buffer outputs_, partial_;
  std::vector<device::Buffer> packed_;  ///< by rank

  // The pass.
  parallel::Sharding sharding_ = parallel::Sharding::base;
  parallel::WeightCut cut_, vocab_cut_;
  parallel::ShardedRows rows_;
  std::vector<parallel::ShardedRows> vocab_rows_;
  std::vector<UnderWay> sums_, gathers_;  ///< by block
};

}  // namespace pecia::model
