// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

/// x[t, i] = cap · tanh(x[t, i] / cap). NaN stays NaN, and infinity becomes ±cap. A number's bits do
/// not depend on where it stands. Zero rows do nothing.
struct SoftCapArgs {
  TensorView x;  ///< [rows, columns] fp32, read and written
  float cap;     ///< above 0
};

}  // namespace pecia::kernels
