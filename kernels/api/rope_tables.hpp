// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>

#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

/// Makes the tables of `rope` for rows at global positions:
///
///     a = float(positions[t]) · frequencies[sets[t], i]
///     cos[t, i] = f · cos(a),  sin[t, i] = f · sin(a)      f = factors[sets[t]], i = 0 … pairs − 1
///
/// The angle a is rounded to fp32, as models were trained. Its cosine and sine are computed in
/// double, rounded to fp32 and multiplied by the factor in fp32. CPUs and the reference have the same
/// bits. A GPU's double cosine errs by up to two units of double, so a value may be one unit of fp32
/// away before the factor, which happens about once in 2²⁸ values. Zero rows do nothing.
struct RopeTablesArgs {
  std::span<const int64_t> positions;  ///< [rows]
  std::span<const int32_t> sets;       ///< [rows]: the set of frequencies by which a row turns
  std::span<const float> frequencies;  ///< [number of sets, pairs]
  std::span<const float> factors;      ///< [number of sets]
  TensorView cos, sin;                 ///< [rows, pairs] fp32, written
};

}  // namespace pecia::kernels
