// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A model's weights, and where they come from: views of the mapped checkpoint, found by each
/// family's names.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/device/buffer.hpp"
#include "lib/device/thread_pool.hpp"
#include "lib/io/safetensors.hpp"
#include "lib/model/layer_weights.hpp"

namespace pecia::model {

/// Views of weights, whole or a part of every matrix, wherever they are. They are valid while the
/// object that owns the memory lives.
struct WeightViews {
  TensorView embedding;  ///< [unit_part of the vocabulary, hidden]
  std::vector<LayerWeights> layers;
  TensorView final_norm;  ///< [hidden]
  LinearWeight head;      ///< like embedding, and the same matrix when tied
  parallel::WeightCut part;

  /// The type of the layers' first matrix, which stands for all of them in reports and choices.
  DType matrix_type() const { return layers.front().attention.q.parts.front().weight.dtype(); }
};

/// Owns the mapped files and, where `dtype` asks for another type than the stored one, the
/// converted copies.
class Weights : public WeightViews {
 public:
  /// InputError naming file and tensor: missing, misshaped, left over (unknown names; known
  /// harmless ones such as rotary_emb.inv_freq excepted), of a type that is no float, not
  /// representable in `dtype`, or two tied embeddings that differ. `dtype`: the resident type of
  /// matrices (fp32, bf16, fp16), or as stored. Norm weights and biases stay as stored. `cut`: the
  /// part of every matrix that is resident; pages of the rest are never touched.
  /// Converted on the pool's threads.
  Weights(const ModelConfig& config, io::Checkpoint checkpoint, std::optional<DType> dtype,
          parallel::WeightCut cut, device::ThreadPool& pool);
  /// The same by the calling thread alone.
  Weights(const ModelConfig& config, io::Checkpoint checkpoint, std::optional<DType> dtype,
          parallel::WeightCut cut = {});

  /// Bytes of the views in use, mapped or converted; and of converted copies alone.
  int64_t resident_bytes() const { return resident_bytes_; }
  int64_t converted_bytes() const { return converted_bytes_; }
  const io::Checkpoint& checkpoint() const { return checkpoint_; }

  /// Throws InputError naming the first tensor of share `share` of `num_shares` that holds a NaN or
  /// infinity, with its index. The stored bytes of all tensors, in the order of their names, are
  /// cut into equal shares, so that the ranks of a host share the reading.
  void check_finite(int share, int num_shares, device::ThreadPool& pool) const;

 private:
  io::Checkpoint checkpoint_;
  std::vector<device::Buffer> converted_;
  std::vector<std::string> used_;  ///< names of the checkpoint's tensors in use, sorted
  int64_t resident_bytes_ = 0;
  int64_t converted_bytes_ = 0;
};

}  // namespace pecia::model
