// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <span>

#include "kernels/api/gated_activation.hpp"
#include "kernels/api/row_invariant.hpp"
#include "lib/core/tensor_view.hpp"

namespace pecia::kernels {

/// The matrices of one expert, as LinearArgs takes weights and their scales.
struct Expert {
  TensorView gate, up;                                            ///< [ffn, hidden]
  TensorView down;                                                ///< [hidden, ffn]
  TensorView gate_scales = {}, up_scales = {}, down_scales = {};  ///< of codes
  TensorView gate_bias = {}, up_bias = {}, down_bias = {};        ///< or absent
};

/// Computes for each row the weighted sum of the experts that it chose.
///
///     f_e(x)  = down_e · activation(gate_e · x, up_e · x)        each product with its bias
///     y[t, :] = Σ_j weights[t, j] · f_e(x[t, :])        e = chosen[t, j]
///
/// The three products of an expert are those of LinearArgs. The activation may be rounded to the
/// type that `down` takes. A row's terms are added in the order of the experts' numbers, in fp32.
/// Backends multiply all rows of an expert together. So the matrices of experts that no row chose
/// are not touched. Zero rows do nothing.
struct ExpertsArgs {
  TensorView x;        ///< [rows, hidden] fp32, or as LinearArgs::x
  TensorView chosen;   ///< [rows, k] int32, dense; the experts of a row differ
  TensorView weights;  ///< [rows, k] fp32, dense
  std::span<const Expert> experts;
  TensorView y;  ///< [rows, hidden] fp32, written
  Activation activation = Activation::silu;
  RowInvariant row_invariant = RowInvariant::no;
};

/// How many of `experts` experts are touched if each of `rows` rows chooses `k` different ones,
/// independently and all alike. One row touches k.
double touched_experts(int64_t rows, int64_t k, int64_t experts);

}  // namespace pecia::kernels
