// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Converts to bf16 by the CPU's own instructions (AVX512-BF16, or BF16 of Arm). From fp32 it is one
/// instruction, where the integer form takes seven.

#include <cstdint>

namespace pecia::kernels::cpu {

/// Elements of bf16 that are made or multiplied at a time.
constexpr int64_t bf16_lanes = 32;

/// Tells whether pecia::isa() allows it.
bool has_native_bf16();

/// to[i] = bf16(x[i]) for i < count. Like float_to_bf16 it rounds to nearest, ties to even, and
/// makes NaN quiet. Only magnitudes below 2^-126 differ on x86: there they become a zero of their
/// sign. Requires has_native_bf16().
void store_bf16_native(const float* x, int64_t count, uint16_t* to);

/// to[i] = codes[i] for i < count, exactly, without a scale. While codes are read, the codes `ahead`
/// bytes after them are asked for. Requires has_native_bf16().
void fp8_to_bf16_native(const uint8_t* codes, int64_t count, int64_t ahead, uint16_t* to);

}  // namespace pecia::kernels::cpu
