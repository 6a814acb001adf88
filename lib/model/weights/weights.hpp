// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A model's weights as views of the mapped checkpoint. Each family's names identify the tensors.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/base/device/buffer.hpp"
#include "lib/base/device/thread_pool.hpp"
#include "lib/files/checkpoint/safetensors.hpp"
#include "lib/model/weights/layer_weights.hpp"
#include "lib/model/weights/stored_codes.hpp"

namespace pecia::model {

/// Views of weights in any memory, either whole or one part of every matrix. They are valid while
/// the owner of the memory lives.
struct WeightViews {
  TensorView embedding;              ///< [unit_part of the vocabulary, hidden]; of the first stage
  std::vector<LayerWeights> layers;  ///< of the stage
  TensorView final_norm;  ///< [hidden]; divided by ModelConfig::logits_divisor; of the last stage
  /// Like embedding, of the last stage; the same matrix when tied; no parts: there is none.
  LinearWeight head;
  /// Of SecondEmbedding: [unit_part of the vocabulary, layers · width], and whole on every rank
  /// [layers · width, hidden] and [width].
  TensorView second_embedding = {};
  LinearWeight second_projection = {};
  TensorView second_norm = {};
  parallel::WeightCut part;

  bool has_head() const { return !head.parts.empty(); }
  /// The type of the embedding, or, in stages without it, of the head or of the layers' first norm,
  /// as tensors that are not codes are held.
  DType plain_type() const;
  /// The type of the layers' first matrix, which represents all of them in reports and choices.
  DType matrix_type() const;
};

/// The types of the layers' matrices in words: "bf16", or "bf16 with experts of mxfp4".
std::string types_text(const WeightViews& weights);
/// The same of a model that is not here: the type of layers' matrices, and the types of experts in
/// any order, none without experts.
std::string types_text(DType layers, const std::vector<DType>& experts);

/// Owns the mapped files. If `dtype` differs from the stored type, it also owns the converted
/// copies.
class Weights : public WeightViews {
 public:
  /// `dtype` is the resident type of matrices (fp32, bf16, fp16); absent, they stay as stored.
  /// Biases always stay as stored, and so do weights of norms unless the model changes them
  /// (Residence). `cut` is the part of every matrix that is resident; pages of the rest are never
  /// touched. The pool's threads do the conversion. Matrices stored as codes stay codes as `codes`
  /// says, if `dtype` is absent. `config` is of the whole model; of several stages only the tensors of
  /// `stage` are used, and others need not be right.
  ///
  /// Throws InputError naming file and tensor when a tensor other than an untied head (has_head) is
  /// missing, or one is misshaped, unknown (except
  /// harmless ones such as rotary_emb.inv_freq), of a type that is not a float, or not
  /// representable in `dtype`, and when two tied embeddings differ.
  Weights(const ModelConfig& config, io::Checkpoint checkpoint, std::optional<DType> dtype,
          parallel::WeightCut cut, device::ThreadPool& pool, const CodeUse& codes = {},
          const ModelStage& stage = {});
  /// Does the same on the calling thread alone.
  Weights(const ModelConfig& config, io::Checkpoint checkpoint, std::optional<DType> dtype,
          parallel::WeightCut cut = {}, const CodeUse& codes = {}, const ModelStage& stage = {});

  /// Bytes of the views in use, mapped or converted, and bytes of the converted copies alone.
  int64_t resident_bytes() const { return resident_bytes_; }
  int64_t converted_bytes() const { return converted_bytes_; }
  const io::Checkpoint& checkpoint() const { return checkpoint_; }

  /// Throws InputError naming the first tensor in share `share` of `num_shares` that holds a NaN, an
  /// infinity or a scale that stands for one, with its index. The stored bytes of all tensors, in the order of their names, are
  /// cut into equal shares, so that the ranks of a host divide the reading.
  void check_finite(int share, int num_shares, device::ThreadPool& pool) const;

 private:
  io::Checkpoint checkpoint_;
  std::vector<device::Buffer> converted_;
  void check_scales(int share, int num_shares) const;

  std::vector<std::string> used_;          ///< names of the checkpoint's tensors in use, sorted
  std::vector<std::string> mxfp4_scales_;  ///< those of them that are scales of mxfp4
  int64_t resident_bytes_ = 0;
  int64_t converted_bytes_ = 0;
};

}  // namespace pecia::model
