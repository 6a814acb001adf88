// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Weights in the memory of a device.

#include <array>
#include <optional>
#include <string_view>

#include "kernels/api/backend.hpp"
#include "lib/device/buffer.hpp"
#include "lib/model/weights.hpp"

namespace pecia::model {

/// What matrices become on their way: codes with scales, of the rows that this rank holds
/// (QuantizeRowsArgs). Embedding, norms and biases stay as they are.
enum class Quantize {
  nothing,
  fp8,   ///< those of the layers
  int8,  ///< those of the layers, and the head
  int4   ///< q, o, gate and up; k, v, down and the head, which suffer most from it, in int8
};

/// What a kind of matrix becomes; absent: as it is.
std::optional<DType> type_of_matrix(Quantize quantize, MatrixKind kind);

/// Of rounded matrices: Σ (rounded − stored)² and Σ stored² over all elements.
struct SquareSums {
  double difference = 0, original = 0;
};

/// Copies of views of the host's memory, dense, every tensor once however many views it has. They
/// pass through pinned memory by piece (WeightUpload), so that the host keeps none of its own, and
/// what is rounded is never whole on the device as it was stored.
class DeviceWeights : public WeightViews {
 public:
  /// That the copies of these take.
  static int64_t bytes_of(const WeightViews& weights, Quantize quantize = Quantize::nothing);

  /// Takes all the memory at once: SystemError when the device has not enough. Returns when the
  /// copies are there. `device` outlives this object; `backend`, the device's, rounds.
  DeviceWeights(const WeightViews& host, device::Device& device, device::Stream& stream,
                kernels::Backend& backend, Quantize quantize = Quantize::nothing);

  int64_t bytes() const { return memory_.bytes(); }
  double seconds() const { return seconds_; }  ///< that the copying took
  Quantize quantized() const { return quantized_; }
  /// By MatrixKind, of all layers; the same in every run.
  const std::array<SquareSums, num_matrix_kinds>& rounding() const { return rounding_; }

 private:
  device::Buffer memory_;
  Quantize quantized_;
  double seconds_ = 0;
  std::array<SquareSums, num_matrix_kinds> rounding_{};
};

}  // namespace pecia::model
