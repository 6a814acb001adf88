// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The tensors of a recurrence. Checkpoints pack its matrices in one of three ways. With 2 key heads,
/// each of 2 heads, the rows are
///
///     in_proj_qkvz       q0 k0 v0 v1 z0 z1 q1 k1 v2 v3 z2 z3      Qwen3-Next, by key head
///     in_proj_ba         b0 b1 a0 a1 b2 b3 a2 a3
///     in_proj_qkv        q0 q1 k0 k1 v0 v1 v2 v3                  Qwen3.5; z, b and a by themselves
///     in_proj            z0 … z3 v0 … v3 k0 k1 q0 q1 a0 … a3      Mamba-2
///
/// The channels of the convolution are those of q, k and v of all heads, with Mamba-2 those of v, k
/// and q.

#include "lib/model/weights/layer_weights.hpp"
#include "lib/model/weights/weight_loader.hpp"

namespace pecia::model {

/// Reads a layer's recurrence, whole and as stored: `rate` is the logarithm of what decays, and
/// matrices that are packed by key head have a block of rows for each. Throws InputError as
/// WeightLoader does.
RecurrentWeights read_recurrent_weights(const ModelConfig& config, WeightLoader& loader,
                                        int64_t layer);

}  // namespace pecia::model
