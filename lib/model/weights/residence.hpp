// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Keeps weights in the type that a job asks for, as views of the mapped file or as converted
/// copies.

#include <optional>
#include <vector>

#include "lib/base/device/buffer.hpp"
#include "lib/base/device/thread_pool.hpp"
#include "lib/files/checkpoint/safetensors.hpp"
#include "lib/model/weights/layer_weights.hpp"

namespace pecia::model {

class Residence {
 public:
  /// `checkpoint` and `pool` outlive this object. Matrices are converted to `dtype` unless they are
  /// stored in it. `norm_weight_offset` is added to weights of norms, which then become fp32.
  Residence(const io::Checkpoint& checkpoint, std::optional<DType> dtype, double norm_weight_offset,
            device::ThreadPool& pool);

  /// The tensor to compute with in place of the stored one. Throws InputError naming file and
  /// tensor for a value that `dtype` cannot represent.
  TensorView matrix(const TensorView& stored);
  TensorView vector(const TensorView& stored);
  /// The weight of a norm, with the offset and divided by `divisor`; in fp32 where these change it.
  TensorView norm(const TensorView& stored, double divisor = 1);
  /// A vector, or a small matrix of such vectors, in fp32, times `factor`.
  TensorView wide(const TensorView& stored, double factor = 1);
  TensorView ones(int64_t size);
  /// With the vectors that are made for it (LayerWeights::made).
  LayerWeights layer(const LayerWeights& stored, const ModelConfig& config, int64_t index);

  std::vector<device::Buffer> converted;
  int64_t resident_bytes = 0;

 private:
  LinearWeight linear(const LinearWeight& stored);
  /// A matrix of blocks of rows as one.
  LinearWeight joined_blocks(const LinearWeight& stored);
  void recurrence(RecurrentWeights& weights);
  [[noreturn]] void refuse_value(const TensorView& stored, int64_t index) const;

  const io::Checkpoint& checkpoint_;
  std::optional<DType> dtype_;
  double norm_weight_offset_;
  device::ThreadPool& pool_;
};

}  // namespace pecia::model
