#pragma once
/// A model's weights as views of the mapped checkpoint, found by each family's names.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/device/buffer.hpp"
#include "lib/io/safetensors.hpp"
#include "lib/model/config.hpp"

namespace pecia::model {

/// A projection [out, in] as one or more blocks of rows whose outputs stand side by side:
/// InternLM2's wqkv gives one block per KV head, GLM's gate_up two halves, everything else a single
/// block.
struct LinearWeight {
  struct Part {
    TensorView weight;  ///< [rows, in]
    TensorView bias;    ///< [rows], or absent
  };
  std::vector<Part> parts;

  int64_t in() const { return parts.front().weight.size(1); }
  int64_t out() const;
};

struct LayerWeights {
  TensorView attention_norm, ffn_norm;  ///< [hidden]
  TensorView q_norm, k_norm;            ///< [head_dim], or absent
  LinearWeight q, k, v, o;  ///< heads × head_dim rows in head order; o: [hidden, heads × head_dim]
  LinearWeight gate, up, down;
};

/// The views stay valid while this object lives; it owns the mapped files and, where `dtype` asks
/// for another type than the stored one, the converted copies.
class Weights {
 public:
  /// InputError naming file and tensor: missing, misshaped, left over (unknown names; known
  /// harmless ones such as rotary_emb.inv_freq excepted), of a type that is no float, not
  /// representable in `dtype`, or two tied embeddings that differ. `dtype`: the resident type of
  /// matrices (fp32, bf16, fp16), or as stored. Norm weights and biases stay as stored.
  Weights(const ModelConfig& config, io::Checkpoint checkpoint, std::optional<DType> dtype);

  TensorView embedding;  ///< [vocab, hidden]
  std::vector<LayerWeights> layers;
  TensorView final_norm;  ///< [hidden]
  LinearWeight head;      ///< [vocab, hidden]; the embedding itself when tied

  /// Bytes of the tensors in use, mapped or converted; and of converted copies alone.
  int64_t resident_bytes() const { return resident_bytes_; }
  int64_t converted_bytes() const { return converted_bytes_; }
  const io::Checkpoint& checkpoint() const { return checkpoint_; }

  /// Throws InputError naming the first tensor of share `part` of `num_parts` that holds a NaN or
  /// infinity, with its index. The stored bytes of all tensors, in the order of their names, are
  /// cut into equal shares, so that the ranks of a host share the reading.
  void check_finite(int part, int num_parts) const;

 private:
  io::Checkpoint checkpoint_;
  std::vector<device::Buffer> converted_;
  std::vector<std::string> used_;  ///< names of the checkpoint's tensors in use, sorted
  int64_t resident_bytes_ = 0;
  int64_t converted_bytes_ = 0;
};

}  // namespace pecia::model
