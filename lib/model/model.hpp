// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The forward pass: rows of any sequences through all layers, on the ranks of a replica.

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "lib/context/attention.hpp"
#include "lib/model/layer_gather.hpp"
#include "lib/model/rotary.hpp"
#include "lib/model/tensor_parallel.hpp"

namespace pecia::model {

/// The rows of this rank's block, in the order of Attention::positions().
struct Rows {
  std::vector<int32_t> tokens;
  std::vector<int64_t> rope_lengths;  ///< see Rotary::tables
};

class Model {
 public:
  /// All references outlive this object. `weights`: cut over the TP ranks of `groups`, in memory
  /// of the device.
  /// `row_invariant`: of all products with weights.
  Model(const ModelConfig& config, const WeightViews& weights, const context::ReplicaGroups& groups,
        const context::Compute& compute,
        kernels::RowInvariant row_invariant = kernels::RowInvariant::no);

  /// Runs the layers of the pass that `attention` has begun. Collective over the replica.
  void forward(const Rows& rows, context::Attention& attention);

  /// Rows whose next-token logits this rank makes together with the ranks that hold the rest of the
  /// vocabulary.
  struct Outputs {
    std::vector<int64_t> which;  ///< indices into the rows asked for
    TensorView hidden;           ///< final norm's output, [which, hidden] fp32
  };
  /// Of the last pass. `rows`: rows of the block, any order. Every rank asks for the same ones;
  /// valid until the next call. Collective over the block.
  Outputs outputs(std::span<const int64_t> rows);

  /// Of rows of the block in the last pass: in which part of the model their activations first held
  /// NaN or infinity, "" where they did not before the final norm, or where the row is another
  /// rank's. Waits for the stream.
  std::vector<std::string> broken_at(std::span<const int64_t> rows);

  /// Whether ranks that make logits together have different rows of the block.
  bool rows_are_cut() const { return tensor_.vocab_rows().size() > 1; }

  /// Which rows of `count` outputs `logits` gives to this rank.
  parallel::RowRange logits_share(int64_t count) const { return tensor_.logits_share(count); }
  /// out[r, :] = logits of hidden's row logits_share.begin + r; out [logits_share, vocab] fp32.
  /// Collective over the ranks that share the outputs.
  void logits(const TensorView& hidden, const TensorView& out);

  /// Over how many ranks the vocabulary is cut in the pass, and this one's part.
  int vocab_parts() const { return tensor_.vocab_cut().count; }
  parallel::RowRange vocab_range() const;
  /// Logits of hidden's rows [count, vocab_range] fp32; valid until the next call.
  TensorView logits_part(const TensorView& hidden);
  /// What each rank made of its part of `count` rows, the rows one after the other and equally long
  /// → that of the rows in logits_share, by rank. Collective as `logits`.
  std::vector<std::vector<std::byte>> exchange_rows(std::span<const std::byte> rows,
                                                    int64_t count) {
    return tensor_.exchange_rows(rows, count);
  }

  /// Of rows that are gathered for products.
  DType operand_type() const { return operand_; }

  /// Moves on weights that travel ahead of their layer, sums and gathers of rows; for polls while
  /// computing.
  void progress() {
    gather_.progress();
    tensor_.progress();
  }

  /// Bytes of activations that forward needs for each row where no heads are exchanged; with an
  /// exchange q, k, v and attention's output are there twice more.
  static int64_t activation_bytes_per_row(const ModelConfig& config);

 private:
  /// What the layers of a pass work on.
  struct Pass {
    context::Attention& attention;
    TensorView hidden;    ///< [own rows, hidden]
    TensorView marks;     ///< [own rows] int32: see kernels::RmsNormArgs
    TensorView normed;    ///< [linear rows, hidden] operand_: multiplied next, block by block
    TensorView cos, sin;  ///< [linear rows, rotary_dim / 2]
  };

  void make_tables(const Rows& rows, const Pass& pass);
  void embed(const Rows& rows, const TensorView& hidden);
  /// A norm of the hidden states: its weight, absent where there is none, and its number in the
  /// order of the pass, from 1 on.
  struct Norm {
    TensorView weight = {};
    int32_t number = 0;
  };
  Norm attention_norm(int64_t layer) const;
  Norm ffn_norm(int64_t layer) const;
  void layer(int64_t index, const LayerWeights& weights, const Pass& pass);
  void project(const LayerWeights& weights, int block, const Pass& pass, const TensorView& q,
               const TensorView& k, const TensorView& v);
  void ffn(const LayerWeights& weights, int block, const Pass& pass);
  void advance(int block, const Norm& own, const Norm& next, const Pass& pass);
  LinearWeight head_part() const;
  void linear(const char* name, const TensorView& x, const LinearWeight& weight,
              const TensorView& y, kernels::Accumulate accumulate = kernels::Accumulate::no,
              int splits = 1);
  void sum_columns(const TensorView& x, std::span<const LinearWeight::Part> parts, int splits,
                   size_t depth, const TensorView& y);
  /// LinearArgs::splits of one of `parts` equal parts of a product that has `whole` of them.
  static int share_of_splits(int whole, int parts) { return std::max(1, whole / parts); }
  int splits() const { return share_of_splits(splits_, tensor_.cut().count); }
  void norm(const TensorView& x, const TensorView& weight, const TensorView& out,
            const TensorView& marks = {}, int32_t mark = 0);

  const ModelConfig& config_;
  const WeightViews& weights_;
  context::Compute compute_;
  Rotary rotary_;
  TensorParallel tensor_;
  LayerGather gather_;
  std::vector<LayerWeights> shifted_;  ///< views for the shift configuration, where it differs
  DType operand_;                      ///< of what is multiplied by the layers' weights
  kernels::RowInvariant row_invariant_;
  int splits_;  ///< of o and down whole; 1: their sums may have any order
  std::vector<device::Buffer> part_sums_;  ///< by depth
  bool stays_on_stream_;                   ///< between ops the host waits for no transfer
  device::Buffer pinned_cos_, pinned_sin_;
  std::unique_ptr<device::Event> tables_sent_;
  device::Buffer marks_, hidden_, normed_, q_, k_, v_, mixed_, gate_, up_, activated_, cos_, sin_,
      output_, logits_;
};

}  // namespace pecia::model
