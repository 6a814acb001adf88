// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "lib/core/tensor_view.hpp"

namespace pecia::kernels {

/// The function of the gate. Both are g · sigmoid(s):
///
///     silu       s = g                              Llama and most others (SwiGLU)
///     gelu_tanh  s = 2 √(2/π) (g + 0.044715 g³)     Gemma (GeGLU); it is ½ g (1 + tanh(s/2))
enum class Activation { silu, gelu_tanh };

/// 2 √(2/π), and the factor of the cube.
inline constexpr float gelu_slope = 1.5957691216057308f, gelu_cube = 0.044715f;

/// out[t, i] = activation(gate[t, i]) · up[t, i]. `out` may be `gate` or `up` if it is fp32.
struct GatedActivationArgs {
  TensorView gate;  ///< [rows, ffn] fp32
  TensorView up;    ///< [rows, ffn] fp32
  TensorView out;   ///< [rows, ffn] fp32 or Backend::operand_type, written, rounded once
  Activation activation = Activation::silu;
};

}  // namespace pecia::kernels
