// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The matrices of a layer that a checkpoint stores as codes, each under its module's own name.

#include <optional>
#include <vector>

#include "lib/base/device/buffer.hpp"
#include "lib/base/device/thread_pool.hpp"
#include "lib/model/weights/layer_weights.hpp"
#include "lib/model/weights/stored_codes.hpp"
#include "lib/model/weights/weight_loader.hpp"

namespace pecia::model {

/// Fills the matrices of `to` that have no parts with the part `cut` of what the checkpoint has. They
/// are codes where resident_code says so, else numbers of the type `dtype`, or of config.json's, or
/// of bf16. Throws InputError as QuantizedMatrix does, and for numbers that the type cannot hold.
void read_codes(const ModelConfig& config, WeightLoader& loader, int64_t layer,
                parallel::WeightCut cut, const CodeUse& use, std::optional<DType> dtype,
                device::ThreadPool& pool, std::vector<device::Buffer>& memory, LayerWeights& to);

}  // namespace pecia::model
