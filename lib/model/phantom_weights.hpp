// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Weights of a model that is known by its configuration alone.

#include <vector>

#include "lib/device/phantom_device.hpp"
#include "lib/model/device_weights.hpp"

namespace pecia::model {

/// The shapes and types that a rank's weights would have in the device's memory, and as much of it
/// taken. Every matrix is one block of rows.
class PhantomWeights : public WeightViews {
 public:
  /// `stored`: of all tensors that `quantize` does not make codes. `device` outlives this object.
  /// SystemError where they are more than its memory.
  PhantomWeights(const ModelConfig& config, DType stored, parallel::WeightCut cut,
                 device::PhantomDevice& device, Quantize quantize = Quantize::nothing);

 private:
  std::vector<device::Buffer> memory_;
};

}  // namespace pecia::model
