// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

/// What the weights of a row's experts are shares of.
enum class Routing {
  of_all,    ///< softmax over all experts; the weights of the chosen ones add up to less than 1
  of_chosen  ///< softmax over the chosen ones; their weights add up to 1
};

/// Chooses experts for each row by a router's logits.
///
///     chosen[t, j]  = the expert of the j-th largest logits[t, ·]; of equal ones the first
///     weights[t, j] = exp(logits[t, chosen[t, j]]) / Σ_e exp(logits[t, e])
///
/// The sum is over all experts or over the chosen ones. It is fp32 or wider. A row's results depend
/// on that row alone. If a row holds NaN or +infinity, all its weights are NaN, and its chosen
/// experts are some `k` different ones. Zero rows do nothing.
struct RouteArgs {
  TensorView logits;   ///< [rows, experts] fp32
  TensorView chosen;   ///< [rows, k] int32, dense, written; 1 ≤ k ≤ experts
  TensorView weights;  ///< [rows, k] fp32, dense, written
  Routing routing = Routing::of_all;
};

}  // namespace pecia::kernels
