// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "kernels/api/merge_picked.hpp"

namespace pecia::kernels {

/// A list of rows, of which the first `learnt` are learnt anew.
struct LearntRows {
  TensorView rows;  ///< [count] int32, distinct; where the tensors are
  int64_t learnt;
};

/// Finds how much of their attention rows pay to tokens beyond those that they see in any case.
///
///     here[r, h] = log(exp(here[r, h]) + exp(lse))       for the parts `always`; `out` is not read
///     need[r]    = max(0, max_h 1 − exp(here[r, h] − all[r, h]))      for rows that are learnt
///     need[r]    = need[r] · growth                                   for the others of the lists
///
/// A head whose log-sums are NaN counts as 0. Rows of no list stay as they are.
struct RowNeedArgs {
  TensorView here;                      ///< [rows, heads] fp32, dense, read and written
  std::span<const PickedParts> always;  ///< without `out`
  TensorView all;                       ///< [rows, heads] fp32, dense
  std::span<const LearntRows> lists;    ///< no row is in two of them
  float growth = 1;
  TensorView need;  ///< [rows] fp32, read and written
};

}  // namespace pecia::kernels
