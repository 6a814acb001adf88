// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

/// What becomes of gate g and up u. All are g · sigmoid(s) · u:
///
///     silu       s = g                              Llama and most others (SwiGLU)
///     gelu_tanh  s = 2 √(2/π) (g + 0.044715 g³)     Gemma (GeGLU); it is ½ g (1 + tanh(s/2)) · u
///     clamped    s = 1.702 g                        gpt-oss; with min(g, 7) for g and
///                                                   1 + min(max(u, −7), 7) for u
enum class Activation { silu, gelu_tanh, clamped };

/// 2 √(2/π), and the factor of the cube.
inline constexpr float gelu_slope = 1.5957691216057308f, gelu_cube = 0.044715f;

/// The factor in s, and the limit of g and |u|, of `clamped`.
inline constexpr float clamped_slope = 1.702f, clamped_limit = 7.0f;

/// out[t, i] = activation(gate[t, i], up[t, i]), computed in fp32. NaN stays NaN. `out` may be `gate`
/// or `up` if it has their type.
struct GatedActivationArgs {
  /// [rows, ffn] fp32, or on backends with rounds_products() both bf16, and then `out`, too
  TensorView gate, up;
  TensorView out;  ///< [rows, ffn] fp32 or Backend::operand_type, written, rounded once
  Activation activation = Activation::silu;
};

}  // namespace pecia::kernels
