// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Online softmax over blocks of keys: the parts of attention between its two products.

#include <cstdint>

#include "kernels/api/window.hpp"

namespace pecia::kernels::cpu {

/// Scores of a block, [rows, keys]. Rows are `stride` apart. There is room up to the next whole
/// vector of keys.
struct ScoreBlock {
  float* scores;
  int64_t stride;
  int64_t rows, keys;
};

/// Sets the scores of keys that a row may not see to −inf. Rows r · group … r · group + group − 1
/// are the heads of the query at query_positions[r]. `scratch` has room for a row of scores.
void mask_scores(const ScoreBlock& block, int64_t group, const int64_t* query_positions,
                 const int64_t* key_positions, Window window, float* scratch);

/// scores[r, j] *= factors[j]
void scale_columns(const ScoreBlock& block, const float* factors);

/// The running state of the rows. Over the keys so far, out = Σ exp(score − maximum) · v and
/// sum = Σ exp(score − maximum). The maximum is −inf before the first key.
struct OnlineRows {
  float* maxima;
  float* sums;
  float* out;
  int64_t out_stride, width;
};

/// Raises the maxima to the block's maxima and rescales sums and out to them. Replaces the scores
/// by the weights exp(score − maximum) and adds these to the sums. Padding keys become 0. Weights
/// are within 2 units in the last place (exp-inl.hpp). A NaN among the scores makes the sum NaN.
void softmax_block(const ScoreBlock& block, const OnlineRows& state);

/// to[i] = from[i] · factor
void scale_row(const float* from, float factor, int64_t count, float* to);

}  // namespace pecia::kernels::cpu
