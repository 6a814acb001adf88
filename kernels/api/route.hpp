// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

/// How experts are chosen and weighed.
enum class Routing {
  of_all,     ///< softmax over all experts; the weights of the chosen ones add up to less than 1
  of_chosen,  ///< softmax over the chosen ones; their weights add up to 1
  sigmoid     ///< each expert has a score of its own
};

/// What Routing::sigmoid has beside. Source: DeepSeek-V3 §2.1.2.
struct SigmoidRouting {
  /// Experts lie in `groups` groups of equal size, and a row takes experts of `kept_groups` of them
  /// only: the groups whose two best c have the largest sums; of equal ones the first.
  int groups = 1, kept_groups = 1;
  bool normed = true;  ///< weights are divided by their sum + 1e-20
  float scale = 1;     ///< what then multiplies them
  /// c are the logits, which differ where scores are rounded to 1. Without a bias and groups.
  bool by_logits = false;

  bool operator==(const SigmoidRouting&) const = default;
};

/// The most groups of experts.
inline constexpr int most_expert_groups = 32;

/// Chooses experts for each row by a router's logits.
///
///     chosen[t, j]  = the expert of the j-th largest c[t, ·]; of equal ones the first
///     weights[t, j] = exp(logits[t, chosen[t, j]]) / Σ_e exp(logits[t, e])
///
/// where c are the logits. The sum is over all experts or over the chosen ones. With
/// Routing::sigmoid scores decide, and the bias has a part in the choice alone:
///
///     s[t, e]       = 1 / (1 + exp(−logits[t, e]))
///     c[t, e]       = s[t, e] + bias[e]
///     weights[t, j] = scale · s[t, chosen[t, j]] / Σ_j s[t, chosen[t, j]]        or without the sum
///
/// With `scales` a weight is then multiplied by scales[chosen[t, j]].
///
/// s and c are fp32, sums are fp32 or wider. A row's results depend on that row alone. If a row holds
/// NaN or +infinity, all its weights are NaN, and its chosen experts are some `k` different ones.
/// Zero rows do nothing.
struct RouteArgs {
  TensorView logits;   ///< [rows, experts] fp32
  TensorView chosen;   ///< [rows, k] int32, dense, written; 1 ≤ k ≤ experts of kept groups
  TensorView weights;  ///< [rows, k] fp32, dense, written
  Routing routing = Routing::of_all;
  TensorView bias = {};         ///< [experts] fp32, or absent; of Routing::sigmoid
  SigmoidRouting sigmoid = {};  ///< groups ≤ most_expert_groups divide experts, by 2 or more each
  TensorView scales = {};       ///< [experts] fp32, or absent
};

}  // namespace pecia::kernels
