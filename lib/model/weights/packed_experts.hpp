// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The experts of gpt-oss and Llama 4. Their checkpoints hold all experts of a layer in a few
/// tensors. gpt-oss has biases, and its rows of gate and up take turns; Llama 4 has the rows of gate
/// above those of up.
///
///     bf16     …gate_up_proj [experts, hidden, 2 · ffn], …down_proj [experts, ffn, hidden]: inputs
///              first
///     MXFP4    …_proj_blocks [experts, outputs, inputs / 32, 16] and …_proj_scales [experts, outputs,
///              inputs / 32], both uint8. Byte b of a block holds inputs 2b (low half) and 2b + 1.
///              An input is FP4[half] · 2^(scale − 127).
///     biases   …gate_up_proj_bias [experts, 2 · ffn], …down_proj_bias [experts, hidden]

#include <vector>

#include "lib/base/device/buffer.hpp"
#include "lib/base/device/thread_pool.hpp"
#include "lib/model/weights/layer_weights.hpp"
#include "lib/model/weights/stored_codes.hpp"
#include "lib/model/weights/weight_loader.hpp"

namespace pecia::model {

/// Reads the part `cut` of a layer's experts, or the experts that are dealt out to it. Matrices of
/// MXFP4 that stay codes are views of the file, in which the rows of gate and up are two apart.
/// Others become bf16, which holds their numbers exactly. Matrices in other types are copied, since
/// they lie inputs first. The memory of copies is added to `memory`. Throws InputError as
/// WeightLoader does.
std::vector<GatedFfnWeights> read_packed_experts(const ModelConfig& config, WeightLoader& loader,
                                                 int64_t layer, parallel::WeightCut cut,
                                                 const CodeUse& codes, device::ThreadPool& pool,
                                                 std::vector<device::Buffer>& memory);

}  // namespace pecia::model
