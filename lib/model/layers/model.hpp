// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The forward pass: takes rows of any sequences through all layers, on the ranks of a replica.

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lib/model/layers/gated_ffn.hpp"
#include "lib/model/layers/kept_rows.hpp"
#include "lib/model/layers/layer_gather.hpp"
#include "lib/model/layers/mixer.hpp"
#include "lib/model/layers/mixture.hpp"
#include "lib/model/layers/stage_link.hpp"
#include "lib/model/recurrence/recurrent_states.hpp"

namespace pecia::model {

/// The rows of this rank's block, in the order of Attention::positions().
struct Rows {
  std::vector<int32_t> tokens;
  std::vector<int64_t> rope_lengths;  ///< see rope_length
  /// Rows whose outputs are asked for after the pass, ascending; every rank of the block has the same.
  /// What follows the last mixer is computed of these alone, but in small passes of GPUs.
  std::vector<int64_t> wanted;
};

class Model {
 public:
  /// All references outlive this object. `weights` is cut over the TP ranks of `groups` and lies in
  /// device memory. `row_invariant` holds for all products with weights. `states`: of recurrent
  /// layers, for the heads that `weights` has; null: there are none.
  Model(const ModelConfig& config, const WeightViews& weights,
        const attention::ReplicaGroups& groups, const attention::Compute& compute,
        kernels::RowInvariant row_invariant = kernels::RowInvariant::no,
        recurrence::RecurrentStates* states = nullptr);

  /// Collective over the stage: runs the layers of the pass that `attention` has begun. Rows come
  /// from the stage before, and go to the next one, where there are these.
  void forward(const Rows& rows, attention::Attention& attention);
  /// Whether rows end here, so that there are outputs: in the last stage.
  bool ends() const { return config_.stage.ends(); }
  /// Waits until all rows have gone to the next stage.
  void finish_sends() { link_.finish(); }

  /// Rows whose next-token logits this rank computes together with the ranks that hold the rest of
  /// the vocabulary.
  struct Outputs {
    std::vector<int64_t> which;  ///< indices into the requested rows
    TensorView hidden;           ///< output of the final norm, [which, hidden] fp32
  };
  /// Collective over the block: the outputs of some of the wanted rows of the last pass. `rows` may
  /// have any order, and every rank requests the same ones. Valid until the next call.
  Outputs outputs(std::span<const int64_t> rows);
  /// The same without a message: each of the rows is on one rank of the block. `rows` may name one
  /// several times. Valid until the next call of either.
  Outputs own_outputs(std::span<const int64_t> rows);

  /// The part of the model in which a row's activations first held NaN or infinity.
  struct BrokenPlace {
    int32_t order = 0;  ///< among the parts, in the order of the pass; 0: there were none
    std::string name;
  };
  /// For each of some wanted rows of the block in the last pass. There is no place if there were none
  /// before the final norm, or if the row belongs to another rank. Waits for the stream.
  std::vector<BrokenPlace> broken_at(std::span<const int64_t> rows);

  /// Whether the ranks that compute logits together have different rows of the block.
  bool rows_are_cut() const { return tensor_.vocab_rows().size() > 1; }

  /// The range of `count` output rows whose logits this rank gets.
  parallel::RowRange logits_share(int64_t count) const { return tensor_.logits_share(count); }
  /// Collective over the ranks that share the outputs: out[r, :] = logits of hidden's row
  /// logits_share.begin + r. `out` is [logits_share, vocab] fp32.
  void logits(const TensorView& hidden, const TensorView& out);

  /// Number of parts into which the pass cuts the vocabulary, and this rank's part.
  int vocab_parts() const { return tensor_.vocab_cut().count; }
  parallel::RowRange vocab_range() const;
  /// Logits of hidden's rows for this rank's part, [count, vocab_range] fp32. Valid until the next
  /// call.
  TensorView logits_part(const TensorView& hidden);
  /// Collective like `logits`. Every rank passes `count` rows of equal length, one after the other,
  /// made from its part of the vocabulary. Each gets, by rank, the rows in its logits_share.
  std::vector<std::vector<std::byte>> exchange_rows(std::span<const std::byte> rows,
                                                    int64_t count) {
    return tensor_.exchange_rows(rows, count);
  }

  /// Type of the rows that products take.
  DType operand_type() const { return products_.operand_type(); }

  /// Advances the weights that travel ahead of their layer, and sums and gathers of rows. Call it
  /// in polls while computing.
  void progress() {
    gather_.progress();
    tensor_.progress();
  }

  /// The length by which the row at `position` is rotated. `prompt_end` is the position where its
  /// turn's prompt ends, and `longest` is the most positions that its request may come to.
  int64_t rope_length(int64_t position, int64_t prompt_end, int64_t longest) const {
    return model::rope_length(config_.rope.scaling, position, prompt_end, longest);
  }

  /// Bytes of activations that forward needs per row when no heads are exchanged. An exchange needs
  /// q, k, v and attention's output twice more. `gated` is the type of gate and up
  /// (Products::result_type).
  static int64_t activation_bytes_per_row(const ModelConfig& config, DType gated = DType::fp32);

 private:
  /// The tensors that the layers of a pass work on.
  struct PassTensors {
    attention::Attention& attention;
    TensorView hidden;  ///< [own rows, hidden]
    TensorView marks;   ///< [own rows] int32: see kernels::RmsNormArgs
    TensorView normed;  ///< [linear rows, hidden] operand_type: next product's input, by block
    TensorView second;  ///< [own rows, layers · width] of SecondEmbedding, or absent
    /// The rows that go on after the last mixer; null: all.
    const std::vector<int64_t>* wanted = nullptr;
  };

  /// Looks the rows up in a table of the vocabulary, times `scale`.
  void embed(const Rows& rows, const TensorView& table, float scale, const TensorView& out);
  void embed_second(const Rows& rows, const TensorView& second);
  void begin_second(int block, const PassTensors& pass);
  void finish_layer(int64_t index, int block, const PassTensors& pass);
  TensorView normed_rows(const std::vector<int32_t>& own);
  /// A norm, and the mark for rows that it finds broken. Its weight may be absent: then rows go on
  /// as they are.
  struct Norm {
    TensorView weight;
    int32_t mark;        ///< mark of rows that this norm is the first to find broken; 0: none yet
    std::string before;  ///< the part of the model that precedes the norm
    /// Of a norm before the first block of a layer: the layer. It finishes the one before.
    std::optional<int64_t> begins = {};
  };
  /// The norms of a layer: before its mixer and its feed-forward, of the hidden states, and after
  /// these, of what they add.
  struct LayerNorms {
    Norm mixer, after_mixer, feed_forward, after_feed_forward;
  };
  static std::vector<LayerNorms> norms_of(const WeightViews& weights, const ModelStage& stage);
  /// The norm before the first block of a layer; null after the last one.
  const Norm* first_norm(int64_t layer) const;
  /// The part of the model whose output the norm with this mark was the first to find broken.
  const std::string& place_of(int32_t mark) const;
  bool mixes(int64_t layer) const { return config_.mixer(layer) != MixerKind::none; }
  bool feeds(int64_t layer) const { return config_.feed_forward(layer) != FeedForward::none; }
  void layer(int64_t index, const LayerWeights& weights, PassTensors& pass);
  void mix(int64_t index, const LayerWeights& weights, PassTensors& pass);
  void go_on_with_wanted(Mixer& mixer, PassTensors& pass);
  /// The number of a wanted row among those that went on.
  int64_t number_of(int64_t row) const;
  void feed_forward(int64_t index, const LayerWeights& weights, const PassTensors& pass);
  void feed_forwards(int64_t index, const LayerWeights& weights, const PassTensors& pass);
  TensorView gathered_norm(device::Buffer& buffer, int block, const TensorView& weight,
                           const PassTensors& pass);
  TensorView normed(int block, const PassTensors& pass);
  void advance(int block, const Norm* own, const Norm* next, const PassTensors& pass);
  /// What happens to a block's sum before it is added to the hidden states; null: nothing.
  TensorParallel::Change change_by(const Norm& norm, int block, const PassTensors& pass);
  LinearWeight head_part() const;
  void cap_logits(const TensorView& logits);

  const ModelConfig& config_;
  const WeightViews& weights_;
  attention::Compute compute_;
  LayerRotations rotations_;
  TensorParallel tensor_;
  LayerGather gather_;
  Products products_;
  std::unique_ptr<Mixer> mixer_, recurrent_mixer_;  ///< the latter null without recurrent layers
  GatedFfn ffn_;
  Mixture mixture_;
  std::vector<LayerNorms> norms_;
  std::vector<LayerWeights> shifted_;  ///< views for the shift configuration, if it differs
  bool stays_on_stream_;               ///< the host waits for no transfer between ops
  device::Buffer marks_, hidden_, normed_, output_, logits_;
  device::Buffer second_, second_gate_, second_up_;   ///< of SecondEmbedding
  device::Buffer dense_, expert_rows_, routed_rows_;  ///< of feed-forwards beside each other
  KeptRows kept_;
  StageLink link_;

  // The end of the last pass.
  std::optional<std::vector<int64_t>> went_on_;  ///< rows after the last mixer; absent: all
  TensorView last_hidden_, last_marks_;          ///< of the own rows that went on
};

}  // namespace pecia::model
