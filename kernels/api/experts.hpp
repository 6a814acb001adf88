// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>

#include "kernels/api/gated_activation.hpp"
#include "kernels/api/row_invariant.hpp"
#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

/// The matrices of one expert, as LinearArgs takes weights, their scales and their factors.
struct Expert {
  TensorView gate, up;  ///< [ffn, hidden]; may be the same
  TensorView down;      ///< [hidden, ffn]
  TensorView gate_scales = {}, up_scales = {}, down_scales = {};  ///< of codes
  TensorView gate_bias = {}, up_bias = {}, down_bias = {};        ///< or absent
  float gate_factor = 1, up_factor = 1, down_factor = 1;          ///< LinearArgs::weight_factor
};

/// What the weight of a row and an expert multiplies.
enum class Weighed : uint8_t {
  outputs,  ///< w · f_e(x)
  inputs    ///< f_e(w · x), without biases of gate and up
};

/// Computes for each row the weighted sum of the experts that it chose.
///
///     f_e(x)  = down_e · activation(gate_e · x, up_e · x)        each product with its bias
///     y[t, :] = Σ_j weights[t, j] · f_e(x[t, :])        e = chosen[t, j]
///
/// With Weighed::inputs the terms are f_e(weights[t, j] · x[t, :]). Weights multiply gate · x and
/// up · x then, in fp32; where a library multiplies rows of bf16, they multiply x, rounded again.
///
/// The sum is over the experts that are here: some neighbours of all experts. The others belong to
/// other ranks and add nothing. The products of an expert are those of LinearArgs; whether fp8 with
/// scales [out] rounds x and the activation to fp8 is up to the backend. The activation may be rounded
/// to `down`'s type. A row's terms are added in the order of the experts' numbers, in fp32. Backends
/// multiply all rows of an expert together. So the matrices of experts that no row chose are not
/// touched. Zero rows do nothing.
struct ExpertsArgs {
  TensorView x;                     ///< [rows, hidden] fp32, or as LinearArgs::x
  TensorView chosen;                ///< [rows, k] int32, dense; the experts of a row differ
  TensorView weights;               ///< [rows, k] fp32, dense
  std::span<const Expert> experts;  ///< at least one
  TensorView y;                     ///< [rows, hidden] fp32, written
  Activation activation = Activation::silu;
  Weighed weighed = Weighed::outputs;
  RowInvariant row_invariant = RowInvariant::no;
  int64_t first_expert = 0;           ///< the number of the first of `experts`
  std::optional<int64_t> count = {};  ///< of all experts; absent: all are here
  /// How many of the numbers in `chosen` are of experts that are here; absent: the host does not
  /// know it.
  std::optional<int64_t> pairs = {};

  int64_t all_experts() const { return count.value_or(std::ssize(experts)); }
};

/// The products of rows with their experts wait for their sum in so much memory of a GPU. A call of
/// more rows takes several rounds, in each of which an expert has fewer rows.
inline constexpr int64_t gpu_expert_bytes = int64_t{512} << 20;
/// Where a library multiplies codes, the matrices of some experts become bf16 in so much more.
inline constexpr int64_t gpu_widened_expert_bytes = int64_t{512} << 20;

/// How many of `experts` experts are touched if each of `rows` rows chooses `k` different ones,
/// independently and all alike. One row touches k.
double touched_experts(double rows, int64_t k, int64_t experts);

/// How many pairs of a row and an expert there are to multiply, and how many experts are touched:
/// as far as the host knows, and else as if rows chose at random. `here`: how many experts are.
struct ExpertWork {
  double pairs, touched;
};
ExpertWork work_of(const ExpertsArgs& args, int64_t here);

}  // namespace pecia::kernels
