// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A mixer that is a linear recurrence (RecurrentConfig): a gated delta net, or Mamba-2.
///
///     q, k, v  ← silu(conv(q · x)), …       each with the last rows before, which the tails have
///     q, k     ← l2 of each head            delta net
///     state    ← decay, strength, k, v      row by row
///     y        = q · state                  then norm and gate, and o
///
/// A sequence's state goes through its rows in the order of their positions, from rank to rank of the
/// ring (recurrence/state_pass.hpp), in groups of heads where that makes ranks work at the same time. So
/// bits depend neither on the ring nor on how prompts are cut, where the backend takes rows in one by
/// one: the CPU's does, a GPU's with RowInvariant::yes. Convolutions run before, beside each other where
/// segments are longer than tails. TP and SP cut the heads, with the key heads that they read: ranks of
/// SP exchange them (recurrence/channel_exchange.hpp).

#include "lib/model/layers/kept_rows.hpp"
#include "lib/model/layers/mixer.hpp"
#include "lib/model/layers/products.hpp"
#include "lib/model/recurrence/channel_exchange.hpp"
#include "lib/model/recurrence/state_files.hpp"
#include "lib/model/recurrence/state_pass.hpp"
#include "lib/model/weights/weights.hpp"

namespace pecia::model {

class RecurrentMixer : public Mixer {
 public:
  /// All references outlive this object. Collective over the ring.
  RecurrentMixer(const ModelConfig& config, const WeightViews& weights,
                 const attention::ReplicaGroups& groups, const attention::Compute& compute,
                 Products& products, TensorParallel& tensor, recurrence::RecurrentStates& states,
                 kernels::RowInvariant row_invariant);

  /// What the rank at this place keeps of a sequence: a part of the heads for each rank of SP × TP.
  static recurrence::StateShape state_shape(const ModelConfig& config,
                                            const parallel::BlockPlace& place);
  /// The states of the whole model, as files have them.
  static io::KvStates saved_states(const ModelConfig& config);
  /// What a rank writes of a state to files. `instance`: its block, among those of all stages.
  static recurrence::StatePart state_part(const ModelConfig& config,
                                          const parallel::BlockPlace& place, int instance);
  /// Elements of a row that the mixer holds.
  static int64_t elements_per_row(const RecurrentConfig& config);

  void begin_pass(attention::Attention& attention) override;
  void begin(int64_t layer, const LayerWeights& weights, int64_t num_rows,
             attention::Attention& attention) override;
  void project(int block, const Input& input, attention::Attention& attention) override;
  void mix(int64_t layer, attention::Attention& attention) override;
  void mix_block(int64_t layer, int block, attention::Attention& attention) override;
  void keep(std::span<const parallel::RowRange> places) override;
  void project_output(int block, const TensorView& hidden,
                      const TensorParallel::Change& change) override;

 private:
  /// A constant that multiplies every element of a head.
  struct Constant {
    device::Buffer buffer;
    TensorView weight;  ///< [key_dim]
  };
  Constant constant(float value) const;
  TensorView rows_in(device::Buffer& buffer, int64_t rows, int64_t width) const {
    return buffer.tensor(DType::fp32, {rows, width});
  }
  void begin_exchange(parallel::Sharding sharding, int64_t num_rows);
  // Of some of the rows: items, or a range.
  void convolve(const recurrence::Projected& rows, std::span<const kernels::StateRows> items);
  void norm_heads(parallel::RowRange range);
  void make_gates(const recurrence::Projected& rows, parallel::RowRange range);
  /// Of some heads; `matrices` has theirs alone.
  void take_in(std::span<const kernels::StateRows> items, const parallel::HeadGroup& heads,
               const TensorView& matrices);
  void gate_and_norm(parallel::RowRange range);
  void norm_groups(const TensorView& y);

  void convolve_all(const recurrence::Projected& rows);
  void go_through();

  const ModelConfig& config_;
  const RecurrentConfig& recurrent_;
  attention::Compute compute_;
  Products& products_;
  TensorParallel& tensor_;
  const attention::ReplicaGroups& groups_;
  kernels::RowInvariant row_invariant_;
  recurrence::StatePass states_;
  recurrence::ChannelExchange exchange_;
  /// By layer, of the heads whose states are here: what the recurrence takes beside rows. Empty for
  /// other layers.
  std::vector<RecurrentWeights> vectors_;
  std::vector<int64_t> numbers_;  ///< of layers among the recurrent ones
  Constant query_norm_, key_norm_;
  device::Buffer raw_buffer_, q_buffer_, k_buffer_, v_buffer_, z_buffer_, a_buffer_, b_buffer_,
      decay_buffer_, strength_buffer_, through_buffer_, mixed_buffer_, squares_buffer_;
  KeptRows kept_;

  bool exchanges_ = false;  ///< ranks of SP have other rows

  // State of the current layer. First of the rows and heads that this rank projects:
  const RecurrentWeights* weights_ = nullptr;
  recurrence::Projected projected_;  ///< before the convolution
  TensorView z_, mixed_;             ///< [rows, heads · value_dim]
  // Of all rows, and the heads whose states are here:
  const RecurrentWeights* here_ = nullptr;
  TensorView q_, k_, v_;         ///< [rows, key_heads · key_dim], …, [rows, heads · value_dim]
  TensorView decay_, strength_;  ///< [rows, heads]
  TensorView through_;           ///< like v_
};

}  // namespace pecia::model
