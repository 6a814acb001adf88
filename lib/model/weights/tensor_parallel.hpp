// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Communication of the forward pass between ranks that hold parts of the same weights. Rows are
/// gathered before a product and products are summed after it, depending on the pass's sharding.
/// Where every rank has whole weights, every call is a no-op.
///
/// A pass's rows go through it block by block (parallel::row_blocks), so that a sum or a gather of
/// one block travels while other blocks are multiplied and, where rows may be attended by block
/// (attention::Attention::run_block), while these attend. Each block in turn calls add_product; some
/// products later wait_sum; then start_gather and wait_gather; then the next add_product. Every
/// rank starts them in the same order, whatever arrives first.
///
/// Sources: Megatron-LM §3 (column and row parallel layers, vocabulary-parallel embedding); CSPS
/// §3.2.1 (SP-TP).

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lib/model/attention/compute.hpp"
#include "lib/model/attention/replica_groups.hpp"
#include "lib/ranks/comm/collectives.hpp"

namespace pecia::model {

/// What happens to a sum of products, in place, before it is added to the hidden states, and to these
/// then.
struct SumChange {
  std::function<void(const TensorView& sum)> apply = {};  ///< may be absent
  float scale = 1;                                        ///< multiplies the hidden states

  explicit operator bool() const { return apply != nullptr || scale != 1; }
};

class TensorParallel {
 public:
  using Rows = std::vector<parallel::RowRange>;

  /// All references outlive this object. Every call below is collective over the rank's block. With
  /// `row_invariant`, sums over the ranks follow LinearArgs::splits, wherever the ranks are.
  TensorParallel(const attention::ReplicaGroups& groups, const attention::Compute& compute,
                 kernels::RowInvariant row_invariant);

  void begin_pass(parallel::Sharding sharding, int64_t num_rows);
  /// Only `some` of the pass's rows go on, ascending, and are numbered anew
  /// (parallel::ShardedRows::part_of). All ranks of the block name the same rows, and no sum or gather
  /// is under way.
  void go_on_with(std::span<const int64_t> some);

  /// The part of each layer's weights that this rank multiplies by, and the part of the vocabulary
  /// that it holds. The vocabulary is cut in every pass.
  parallel::WeightCut cut() const { return cut_; }
  parallel::WeightCut vocab_cut() const { return vocab_cut_; }
  const parallel::ShardedRows& rows() const { return rows_; }

  int num_blocks() const { return static_cast<int>(rows_.blocks.size()); }
  /// The rows of a block in `all`, which is [linear rows, …].
  TensorView block_of(const TensorView& all, int block) const;
  /// The rows of a block in `own`, which is [own rows, …] with one block after the other.
  TensorView own_of(const TensorView& own, int block) const;
  /// How many products of other blocks to enqueue between a block's add_product and its wait_sum.
  /// There are num_blocks − 1 of them before the block's next product. If a gather follows, the
  /// result is half of these, and the gather has the other half.
  int products_before_sum() const;

  /// Starts hidden += Σ over the parts of the weights of the block's rows times the part; done
  /// after wait_sum. `multiply` computes this rank's product of all the block's rows and writes it
  /// to `to`. Where the weights are whole, it adds the product there. `hidden` is [own rows of the
  /// block, width], fp32, dense, and untouched until wait_sum. If several ranks own a row, they get
  /// the same bits. With `change`, wait_sum lets it change the sum of the own rows, in fp32 and in
  /// place, before it adds them, and multiplies `hidden` by its scale then. `narrowest` is the type
  /// besides fp32 that `to` may have where nothing is added to it.
  using Multiply = std::function<void(const TensorView& to, kernels::Accumulate accumulate)>;
  using Change = SumChange;
  void add_product(int block, const TensorView& hidden, const Multiply& multiply,
                   const Change& change = {}, DType narrowest = DType::fp32);
  /// Waits for the block's sum and adds it; returns at once when there is none.
  void wait_sum(int block);

  /// Sums fp32 numbers over the ranks that have the other parts of the weights; done after
  /// wait_parts. One such sum is under way at a time.
  void start_sum_of_parts(const TensorView& parts);
  void wait_parts() { wait(parts_); }

  /// Fills in the block's rows of `all` [linear rows, width], of any type, dense. It already contains
  /// this rank's own rows. Rows of fp32 travel in the wire's type, and all of them are rounded then.
  void start_gather(int block, const TensorView& all);
  void wait_gather(int block);

  /// Advances transfers under way; call it in polls while computing.
  void progress();

  /// hidden = the embedding of the own rows; each block is done after its wait_sum. `look_up`
  /// writes the embeddings of some rows one after the other, with zeros for tokens outside this
  /// rank's part of the vocabulary.
  using LookUp = std::function<void(const Rows& rows, const TensorView& to)>;
  void embed(const TensorView& hidden, const LookUp& look_up);

  /// The rows of each rank of the vocabulary group, by rank; one entry if all have the same rows.
  /// The group computes the logits of these rows together.
  const std::vector<parallel::ShardedRows>& vocab_rows() const { return vocab_rows_; }
  /// Gathers some own rows of all ranks of the group; `counts` is by rank. Returns `own` itself if
  /// all ranks own the same rows.
  TensorView gather_outputs(const TensorView& own, const std::vector<int64_t>& counts);
  /// The range of `count` rows of logits that this rank gets whole.
  parallel::RowRange logits_share(int64_t count) const;
  /// Exchanges part [count, this rank's part of the vocabulary] → out [logits_share(count), vocab].
  void exchange_logits(const TensorView& part, const TensorView& out);
  /// Exchanges `count` rows of any bytes, all of equal length. Returns, by rank, the rows in this
  /// rank's logits_share(count).
  std::vector<std::vector<std::byte>> exchange_rows(std::span<const std::byte> rows, int64_t count);

 private:
  comm::Collectives& weight_group() const {
    return sharding_ == parallel::Sharding::shift ? *block_ : *tp_;
  }
  bool rows_differ() const;  ///< whether ranks of the vocabulary group have different rows
  comm::Communicator& vocab_group() const;
  /// A transfer under way, and how the wait for it is recorded. After the wait, a sum of products
  /// is changed, in `wide` if it is not in fp32 itself, and added to the hidden states. Where nothing
  /// travels, there may be a sum alone.
  struct UnderWay {
    std::unique_ptr<comm::Transfer> transfer;
    const char* name = nullptr;
    int64_t bytes = 0;
    TensorView sum = {}, hidden = {};
    TensorView wide = {};  ///< the rows of `sum`, or those that were gathered, in fp32
    Change change = {};
  };
  void wait(UnderWay& one);
  bool gathers() const { return sharding_ == parallel::Sharding::sp_tp && cut_.count > 1; }
  void round(const TensorView& values, const TensorView& to) const;
  UnderWay all_reduce(const TensorView& values);
  void start_sum(int block, const TensorView& partial);
  void start_scatter(int block, const TensorView& partial, const TensorView& own);

  const attention::ReplicaGroups& groups_;
  attention::Compute compute_;
  std::unique_ptr<comm::Collectives> tp_, block_;
  device::Buffer outputs_, partial_;
  device::Buffer sums_on_wire_, embedded_, rows_on_wire_;  ///< where these do not travel in fp32
  std::vector<device::Buffer> packed_;                     ///< by rank

  // State of the current pass.
  parallel::Sharding sharding_ = parallel::Sharding::base;
  parallel::WeightCut cut_, vocab_cut_;
  parallel::ShardedRows rows_;
  std::vector<parallel::ShardedRows> vocab_rows_;
  std::vector<UnderWay> sums_, gathers_;  ///< by block
  UnderWay parts_;
};

}  // namespace pecia::model
