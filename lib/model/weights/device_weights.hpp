// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Weights in device memory.

#include <array>
#include <optional>
#include <string_view>

#include "kernels/api/backend.hpp"
#include "lib/base/device/buffer.hpp"
#include "lib/model/weights/weights.hpp"

namespace pecia::model {

/// Which matrices are converted to codes with scales (QuantizeRowsArgs) during the upload, except
/// those that are codes already. Each rank converts the rows it holds. Experts are converted like
/// dense matrices, and q, k, v, z and o of a recurrence like those of attention, z like q. Embedding,
/// norms, biases, routers, and a and b of a recurrence are never converted.
enum class Quantize {
  nothing,
  fp8,      ///< the layers' matrices
  fp8_ffn,  ///< matrices of feed-forward and of experts
  int8,     ///< the layers' matrices and the head
  int4      ///< q, o, gate and up; k, v, down and the head, which suffer most, become int8
};

/// The code type of a kind of matrix; absent if it is not converted.
std::optional<DType> type_of_matrix(Quantize quantize, MatrixKind kind);

/// The type in which a rank holds the matrices of a kind, if all that are not codes are `stored`.
DType resident_type(const ModelConfig& config, MatrixKind kind, DType stored, Quantize quantize,
                    const CodeUse& codes);

/// Rounding error of matrices: Σ (rounded − stored)² and Σ stored² over all elements.
struct SquareSums {
  double difference = 0, original = 0;
};

/// Dense copies of views of host memory. Every tensor is copied once, however many views it has.
/// Copies pass through pinned memory in pieces (WeightUpload), so the host keeps no copy, and the
/// device never holds a rounded matrix whole in its stored type.
class DeviceWeights : public WeightViews {
 public:
  /// Bytes that the copies of `weights` take.
  static int64_t bytes_of(const WeightViews& weights, Quantize quantize = Quantize::nothing);

  /// Allocates all the memory at once and returns when the copies are done. `device` outlives this
  /// object; `backend`, which belongs to it, does the rounding. Throws SystemError when the device
  /// has too little memory.
  DeviceWeights(const WeightViews& host, device::Device& device, device::Stream& stream,
                kernels::Backend& backend, Quantize quantize = Quantize::nothing);

  int64_t bytes() const { return memory_.bytes(); }
  double seconds() const { return seconds_; }  ///< time that the copying took
  Quantize quantized() const { return quantized_; }
  /// Rounding errors of all layers, indexed by MatrixKind; the same in every run.
  const std::array<SquareSums, num_matrix_kinds>& rounding() const { return rounding_; }

 private:
  device::Buffer memory_;
  Quantize quantized_;
  double seconds_ = 0;
  std::array<SquareSums, num_matrix_kinds> rounding_{};
};

}  // namespace pecia::model
