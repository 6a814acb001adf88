// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Weights of a model of which only the configuration is known.

#include <vector>

#include "lib/base/device/phantom_device.hpp"
#include "lib/model/weights/device_weights.hpp"

namespace pecia::model {

/// Has the shapes and types that a rank's weights would have in device memory, and takes as much of
/// it. Every matrix is one block of rows, except for float matrices whose columns are cut and that
/// are used in place. q, k and v, and gate and up, lie next to each other where they are of one
/// type, so they may be one product (joined).
class PhantomWeights : public WeightViews {
 public:
  /// `stored` is the type of all tensors that neither `quantize` converts to codes nor `codes` keeps
  /// as such. `in_place`: ranks use a mapped checkpoint where it lies, as CPUs do, so columns of a
  /// matrix keep its row stride. `device` outlives this object. Throws SystemError when the weights
  /// exceed its memory.
  PhantomWeights(const ModelConfig& config, DType stored, parallel::WeightCut cut,
                 device::PhantomDevice& device, Quantize quantize = Quantize::nothing,
                 const CodeUse& codes = {}, bool in_place = false);

 private:
  std::vector<device::Buffer> memory_;
};

}  // namespace pecia::model
