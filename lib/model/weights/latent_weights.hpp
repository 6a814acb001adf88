// SPDX-License-Identifier: Apache-2.0
#pragma once
/// kv_b of latent attention, [heads · (nope_dim + value_dim), kv_rank]: for each head the rows of its
/// keys, K_h, then those of its values, V_h. K_hᵀ of all heads are one matrix, and so are V_h and K_h.

#include <optional>
#include <vector>

#include "lib/base/device/buffer.hpp"
#include "lib/base/device/thread_pool.hpp"
#include "lib/model/weights/layer_weights.hpp"
#include "lib/model/weights/weight_loader.hpp"

namespace pecia::model {

/// Reads key_up, value_up and head_keys of the heads of a cut, in the type that kv_b has. Codes become
/// numbers of `dtype`, or of the type of the checkpoint's other weights. The memory is added to
/// `memory`. Throws InputError as WeightLoader does.
void read_latent_up(const ModelConfig& config, WeightLoader& loader, int64_t layer,
                    parallel::WeightCut cut, std::optional<DType> dtype, device::ThreadPool& pool,
                    std::vector<device::Buffer>& memory, LatentWeights& weights);

}  // namespace pecia::model
