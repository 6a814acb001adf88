// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/cpu/attention/softmax.hpp"

namespace pecia::kernels::cpu {

/// Does softmax_block with weights [rows, weights_stride] in bf16. They are rounded once, and are 0
/// from `keys` on up to a whole vector. The scores are left. The sums add the weights before they
/// are rounded. These are within (2 + maximum − score) · 2^-23 of themselves. If there are
/// `factors`, one for each key, they multiply the weights before these are rounded, and not the
/// sums. Requires has_native_bf16().
void softmax_block_bf16(const ScoreBlock& block, const OnlineRows& state, uint16_t* weights,
                        int64_t weights_stride, const float* factors = nullptr);

}  // namespace pecia::kernels::cpu
