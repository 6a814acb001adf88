// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The mixer of a layer: projects the rows, lets each see the rows of its sequence that stand before
/// it, and projects the result.
///
///     AttentionMixer   attention with q, k and v by head
///     LatentMixer      attention to latents (ModelConfig::latent)
///     RecurrentMixer   a linear recurrence (ModelConfig::recurrent)

#include "lib/model/attention/attention.hpp"
#include "lib/model/layers/layer_rotations.hpp"
#include "lib/model/weights/layer_weights.hpp"
#include "lib/model/weights/tensor_parallel.hpp"

namespace pecia::model {

class Mixer {
 public:
  Mixer() = default;
  Mixer(const Mixer&) = delete;
  Mixer& operator=(const Mixer&) = delete;
  virtual ~Mixer() = default;

  /// The rows of one block that the mixer reads.
  struct Input {
    TensorView rows;               ///< [rows, hidden], as products take them
    RotationTables keys, queries;  ///< of the layer
  };

  /// Begins a pass, which `attention` has begun.
  virtual void begin_pass(attention::Attention& /*attention*/) {}
  /// Collective over the replica. Call these for each layer, in this order: begin; project for
  /// every block; mix; project_output for every block. Where Attention::runs_blocks, the order may be:
  /// begin; project, mix_block and project_output for every block in turn. `num_rows` counts the rows
  /// of all blocks. Implementations of `begin` begin the layer of `attention`, too.
  virtual void begin(int64_t layer, const LayerWeights& weights, int64_t num_rows,
                     attention::Attention& attention) = 0;
  virtual void project(int block, const Input& input, attention::Attention& attention) = 0;
  virtual void mix(int64_t layer, attention::Attention& attention) = 0;
  virtual void mix_block(int64_t layer, int block, attention::Attention& attention) = 0;
  /// Between mix and project_output: of the rows of all blocks only the ones at these places go on.
  virtual void keep(std::span<const parallel::RowRange> places) = 0;
  /// Starts adding the output of the block's rows to `hidden` (TensorParallel::add_product, which
  /// also says what `change` is).
  virtual void project_output(int block, const TensorView& hidden,
                              const TensorParallel::Change& change) = 0;
};

}  // namespace pecia::model
