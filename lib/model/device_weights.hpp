#pragma once
/// Weights in the memory of a device.

#include <array>

#include "kernels/api/backend.hpp"
#include "lib/device/buffer.hpp"
#include "lib/model/weights.hpp"

namespace pecia::model {

/// What the layers' matrices become on their way; embedding, head, norms and biases stay as they
/// are.
enum class Quantize {
  nothing,
  fp8  ///< codes with a scale for each row of what this rank holds (QuantizeRowsArgs)
};

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
  /// Of the matrices of each kind in all layers, as layer_matrices names them; the same in every
  /// run.
  const std::array<SquareSums, layer_matrices.size()>& rounding() const { return rounding_; }

 private:
  device::Buffer memory_;
  Quantize quantized_;
  double seconds_ = 0;
  std::array<SquareSums, layer_matrices.size()> rounding_{};
};

}  // namespace pecia::model
