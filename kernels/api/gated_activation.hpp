// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

/// What becomes of gate g and up u. The first three are g · sigmoid(s) · u:
///
///     silu       s = g                              Llama and most others (SwiGLU)
///     gelu_tanh  s = 2 √(2/π) (g + 0.044715 g³)     Gemma (GeGLU); it is ½ g (1 + tanh(s/2)) · u
///     clamped    s = slope · g                      gpt-oss; with min(g, limit) for g and
///                                                   1 + min(max(u, −limit), limit) for u
///     sigmoid    sigmoid(g) · u                     gates of attention, as AFMoE has them
///     relu       max(g, 0) · u                      Nemotron-H, with u for g: relu(u)²
struct Activation {
  enum class Kind { silu, gelu_tanh, clamped, sigmoid, relu };
  Kind kind = Kind::silu;
  float slope = 1.702f, limit = 7.0f;  ///< of `clamped`; as gpt-oss has them

  static const Activation silu, gelu_tanh, clamped, sigmoid, relu;
  bool operator==(const Activation&) const = default;
};
inline constexpr Activation Activation::silu{Kind::silu};
inline constexpr Activation Activation::gelu_tanh{Kind::gelu_tanh};
inline constexpr Activation Activation::clamped{Kind::clamped};
inline constexpr Activation Activation::sigmoid{Kind::sigmoid};
inline constexpr Activation Activation::relu{Kind::relu};

/// 2 √(2/π), and the factor of the cube.
inline constexpr float gelu_slope = 1.5957691216057308f, gelu_cube = 0.044715f;

/// out[t, i] = activation(gate[t, i], up[t, i]), computed in fp32. NaN stays NaN. `gate` may be `up`,
/// and `out` may be one of them if it has their type.
struct GatedActivationArgs {
  /// [rows, ffn] fp32, or on backends with rounds_products() both bf16, and then `out`, too. `gate`
  /// may be [rows, 1], fp32, the same for all columns.
  TensorView gate, up;
  TensorView out;  ///< [rows, ffn] fp32 or Backend::operand_type, written, rounded once
  Activation activation = Activation::silu;
};

}  // namespace pecia::kernels
