// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The weights of strip.hpp for rows that stay rows, with the same bits. All functions require
/// has_native_bf16().

#include <cstdint>

namespace pecia::kernels::cpu {

/// A block's scores of a row. Those of keys that the row does not see are −inf, and so are those from
/// the last key on to a whole chunk of 32.
struct RowScores {
  const float* scores;
  const float* scales;  ///< from scores to units
  int64_t keys;         ///< a multiple of 32
};

/// What is kept of a row while keys are added: out = Σ weight · v, sum = Σ weight.
struct RowState {
  float *maximum, *sum;
  float* out;
  int64_t width;
};

/// Writes the weights. Raises the maximum as a strip does, and scales sum and out to it.
void weigh_row(const RowScores& row, const RowState& state, uint16_t* weights);

/// Weights [rows, keys] of bf16. The keys are a multiple of 32.
struct WeightRows {
  uint16_t* weights;
  int64_t stride, rows, keys;
};

/// Adds the weights of each row to its sum, one after the other, as a strip does.
void add_weights(const WeightRows& rows, float* sums);

/// weights[r, key] *= factors[key]
void multiply_weights(const WeightRows& rows, const float* factors);

}  // namespace pecia::kernels::cpu
