// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Finds what is sent on from a part of the logits, with a block for each row of it.

#include "kernels/api/shortlist.hpp"
#include "kernels/cuda/sampling/sampling_kernels.cuh"

namespace pecia::kernels::cuda {

/// Tells whether sampling can go on with this part: log Σ exp is finite, or −inf.
PECIA_HD bool is_part(const RowSoftmax& row) {
  return row.normaliser < static_cast<double>(std::numeric_limits<float>::infinity());
}

/// Finds the best token of each row. Grid: rows.
static __global__ void best_candidate_kernel(const float* logits, const float* scores,
                                             const RowSoftmax* softmax, int64_t vocab,
                                             int64_t first_token, Candidate* candidates) {
  __shared__ Best bests[warp_size];
  const int64_t begin = blockIdx.x * vocab;
  const Best best = best_of_row(scores + begin, vocab, bests);
  if (threadIdx.x > 0) return;
  candidates[blockIdx.x] = is_part(softmax[blockIdx.x])
                               ? Candidate{static_cast<int32_t>(first_token + best.token),
                                           best.score, logits[begin + best.token]}
                               : Candidate{no_token, not_a_number, not_a_number};
}

/// Writes the first `count` of each row's tokens by rank. Grid: rows.
static __global__ void candidates_kernel(const float* logits, const float* sorted,
                                         const int32_t* tokens_by_rank, const RowSoftmax* softmax,
                                         int64_t vocab, int64_t first_token, int64_t count,
                                         Candidate* candidates) {
  const int64_t begin = blockIdx.x * vocab, to = blockIdx.x * count;
  const bool part = is_part(softmax[blockIdx.x]);
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    const int32_t token = tokens_by_rank[begin + i];
    candidates[to + i] = part ? Candidate{static_cast<int32_t>(first_token + token),
                                          sorted[begin + i], logits[begin + token]}
                              : Candidate{no_token, not_a_number, not_a_number};
  }
}

static __global__ void top_tokens_kernel(const float* sorted, const int32_t* tokens_by_rank,
                                         const RowSoftmax* softmax, int64_t vocab,
                                         int64_t first_token, int64_t count, TopToken* tops) {
  const int64_t begin = blockIdx.x * vocab, to = blockIdx.x * count;
  const bool part = is_part(softmax[blockIdx.x]);
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x)
    tops[to + i] = part ? TopToken{static_cast<int32_t>(first_token + tokens_by_rank[begin + i]),
                                   sorted[begin + i]}
                        : TopToken{no_token, not_a_number};
}

/// Writes the token that each row asks for. There is a thread for each row.
static __global__ void wanted_kernel(const float* logits, const int32_t* wanted,
                                     const RowSoftmax* softmax, int64_t rows, int64_t vocab,
                                     int64_t first_token, Candidate* candidates) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const int64_t column = wanted[row] - first_token;
  Candidate found = {no_token, minus_infinity, minus_infinity};
  if (!is_part(softmax[row]))
    found = {no_token, not_a_number, not_a_number};
  else if (column >= 0 && column < vocab)
    found = {wanted[row], logits[row * vocab + column], logits[row * vocab + column]};
  candidates[row] = found;
}

static __global__ void log_sums_kernel(const RowSoftmax* softmax, int64_t rows, double* log_sums) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row < rows) log_sums[row] = is_part(softmax[row]) ? softmax[row].normaliser : not_a_number;
}

}  // namespace pecia::kernels::cuda
