// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Gathers layers' weights that are cut over a tensor-parallel group, whole, on every rank. In a
/// pass over long sequences, moving weights costs less than moving activations. While a layer
/// computes, the next layer's weights travel. Source: CSPS §3.2.1 (SP-NTP over sharded weights).

#include <memory>

#include "lib/model/attention/compute.hpp"
#include "lib/model/attention/replica_groups.hpp"
#include "lib/model/weights/weights.hpp"
#include "lib/ranks/comm/collectives.hpp"

namespace pecia::model {

class LayerGather {
 public:
  /// All references outlive this object; `weights` is cut over the ranks of groups.tp.
  LayerGather(const ModelConfig& config, const WeightViews& weights,
              const attention::ReplicaGroups& groups, const attention::Compute& compute);

  /// Starts gathering layer 0. This call and `layer` are collective over groups.tp.
  void begin_pass();

  /// All weights of layer `index`, valid until the call after the next one. Layers must be
  /// requested in order.
  LayerWeights layer(int64_t index);

  /// Advances a gather under way; call it in polls while computing.
  void progress() { collectives_->progress(); }

  /// Bytes that this rank sends for layer `index`.
  int64_t bytes_sent(int64_t index) const;

 private:
  /// Where one matrix, of which the rank holds a part, lies in the block that a rank sends. Its bias, in fp32, follows it; the
  /// scales follow if the matrix is codes.
  struct Piece {
    const LinearWeight* held;
    int64_t rows, columns;  ///< columns: elements
    DType dtype;
    bool has_bias;
    int64_t offset, bias_offset, scales_offset;
    int64_t row_scales = 0;
  };
  /// The same of a vector of a recurrence, or of a small matrix of such, in fp32.
  struct VectorPiece {
    TensorView held;
    int64_t offset;
  };
  struct Layout {
    std::vector<Piece> matrices;
    std::vector<VectorPiece> vectors;
    int64_t block_bytes = 0;
  };
  struct Slot {
    device::Buffer memory, vectors;
    std::unique_ptr<comm::Transfer> transfer;
  };

  Layout layout_of(int64_t index) const;
  void start(int64_t index);
  void pack(const Layout& layout, std::byte* to) const;
  void join_vectors(const Layout& layout, Slot& slot, RecurrentWeights& whole);
  void pack_bias(const TensorView& bias, const TensorView& to) const;
  static LinearWeight::Part part_at(const Piece& piece, std::byte* block);

  const ModelConfig& config_;
  const WeightViews& weights_;
  comm::Communicator& group_;
  std::unique_ptr<comm::Collectives> collectives_;
  attention::Compute compute_;
  Slot slots_[2];
};

}  // namespace pecia::model
