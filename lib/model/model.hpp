// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The forward pass: rows of any sequences through all layers, on the ranks of a replica.

#include <memory>
#include <span>
#include <vector>

#include "lib/model/attention_mixer.hpp"
#include "lib/model/gated_ffn.hpp"
#include "lib/model/layer_gather.hpp"
#include "lib/model/rotary.hpp"

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
  DType operand_type() const { return products_.operand_type(); }

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
    TensorView normed;    ///< [linear rows, hidden] operand_type: multiplied next, block by block
    TensorView cos, sin;  ///< [linear rows, rotary_dim / 2]
  };

  void make_tables(const Rows& rows, const Pass& pass);
  void embed(const Rows& rows, const TensorView& hidden);
  /// A norm of the hidden states.
  struct Norm {
    TensorView weight;
    int32_t mark;        ///< of rows that it is the first to find broken; 0: none yet
    std::string before;  ///< the part of the model that they come from
  };
  static std::vector<Norm> norms_of(const WeightViews& weights);
  /// Before the layer's mixer, null after the last one; and before its feed-forward.
  const Norm* mixer_norm(int64_t layer) const;
  const Norm* ffn_norm(int64_t layer) const;
  void layer(int64_t index, const LayerWeights& weights, const Pass& pass);
  void advance(int block, const Norm* own, const Norm* next, const Pass& pass);
  LinearWeight head_part() const;

  const ModelConfig& config_;
  const WeightViews& weights_;
  context::Compute compute_;
  Rotary rotary_;
  TensorParallel tensor_;
  LayerGather gather_;
  Products products_;
  AttentionMixer mixer_;
  GatedFfn ffn_;
  std::vector<Norm> norms_;
  std::vector<LayerWeights> shifted_;  ///< views for the shift configuration, where it differs
  bool stays_on_stream_;               ///< between ops the host waits for no transfer
  device::Buffer pinned_cos_, pinned_sin_;
  std::unique_ptr<device::Event> tables_sent_;
  device::Buffer marks_, hidden_, normed_, cos_, sin_, output_, logits_;
};

}  // namespace pecia::model
