// SPDX-License-Identifier: Apache-2.0
#pragma once
/// The kernels with a block for each row of logits: statistics, penalties, and the draw from sorted
/// scores.

#include "kernels/cuda/sampling/sampling_steps.hpp"
#include "kernels/cuda/shared/warp.cuh"

namespace pecia::kernels::cuda {

/// Returns the threads of a block. They are whole warps, no more than there are tokens for.
inline int sampling_threads(int64_t vocab) {
  return static_cast<int>(vocab >= 1024 ? 1024 : (vocab + warp_size - 1) / warp_size * warp_size);
}

/// The greatest score and its first place. NaN is passed over.
struct Best {
  float score;
  int32_t token;
};
PECIA_HD Best better(Best a, Best b) {
  const bool second = b.score > a.score || (b.score == a.score && b.token < a.token);
  return second ? b : a;
}

__device__ __forceinline__ Best block_best(Best best, Best* scratch) {
  const auto of_warp = [](Best mine) {
#pragma unroll
    for (int offset = warp_size / 2; offset > 0; offset /= 2)
      mine = better(mine, {__shfl_xor_sync(all_lanes, mine.score, offset),
                           __shfl_xor_sync(all_lanes, mine.token, offset)});
    return mine;
  };
  const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
  best = of_warp(best);
  if (lane == 0) scratch[warp] = best;
  __syncthreads();
  return of_warp(lane < static_cast<int>(blockDim.x) / warp_size ? scratch[lane] : scratch[0]);
}

/// Calls body(token, score) for the thread's tokens of a row in their order. Several are read at
/// once, as few blocks share a row, and they would wait for each read.
template <typename Body>
__device__ __forceinline__ void for_each_score(const float* scores, int64_t vocab,
                                               const Body& body) {
  constexpr int at_once = 8;
  for (int64_t first = threadIdx.x; first < vocab; first += int64_t{at_once} * blockDim.x) {
    const auto token = [&](int i) { return first + int64_t{i} * blockDim.x; };
    float read[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) read[i] = token(i) < vocab ? scores[token(i)] : 0.0f;
#pragma unroll
    for (int i = 0; i < at_once; ++i)
      if (token(i) < vocab) body(static_cast<int32_t>(token(i)), read[i]);
  }
}

__device__ __forceinline__ Best best_of_row(const float* scores, int64_t vocab, Best* scratch) {
  Best best = {minus_infinity, no_token_yet};
  for_each_score(scores, vocab, [&](int32_t token, float score) {
    best = better(best, {score, token});
  });
  return block_best(best, scratch);
}

/// Computes Σ exp(score − best) of each piece of a row, which has `tokens` tokens, and its best.
/// Grid: (rows, pieces).
static __global__ void softmax_pieces_kernel(const float* logits, int64_t vocab, int64_t tokens,
                                             SoftmaxPiece* pieces) {
  __shared__ Best bests[warp_size];
  __shared__ double sums[warp_size];
  const int64_t first = blockIdx.y * tokens;
  const int64_t count = vocab - first < tokens ? vocab - first : tokens;
  const float* const scores = logits + blockIdx.x * vocab + first;
  const Best best = best_of_row(scores, count, bests);
  double sum = 0;
  for_each_score(scores, count, [&](int32_t, float score) {
    sum += score == minus_infinity ? 0 : expf(score - best.score);
  });
  sum = block_sum(sum, sums);
  const bool none = best.token == no_token_yet;
  if (threadIdx.x == 0)
    pieces[int64_t{blockIdx.x} * gridDim.y + blockIdx.y] = {
        sum, best.score, none ? best.token : best.token + static_cast<int32_t>(first)};
}

/// Puts the pieces of each row together. Grid: rows, of one warp each.
static __global__ void softmax_kernel(const SoftmaxPiece* pieces, int num_pieces,
                                      RowSoftmax* rows) {
  __shared__ Best bests[warp_size];
  pieces += int64_t{blockIdx.x} * num_pieces;
  Best best = {minus_infinity, no_token_yet};
  for (int p = static_cast<int>(threadIdx.x); p < num_pieces; p += warp_size)
    best = better(best, {pieces[p].score, pieces[p].token});
  best = block_best(best, bests);
  double sum = 0;
  for (int p = static_cast<int>(threadIdx.x); p < num_pieces; p += warp_size)
    sum += pieces[p].sum * (pieces[p].score == best.score ? 1 : expf(pieces[p].score - best.score));
  sum = warp_sum(sum);
  if (threadIdx.x == 0) rows[blockIdx.x] = {log(sum) + best.score, best.token};
}

/// Counts the tokens of the rows' prompts and outputs. Grid: (rows, pieces).
static __global__ void count_kernel(const TokenList* lists, const int32_t* tokens, int64_t vocab,
                                    uint32_t* counts) {
  const TokenList list = lists[blockIdx.x];
  const int64_t step = int64_t{gridDim.y} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.y} * blockDim.x + threadIdx.x; i < list.count; i += step) {
    uint32_t* const count = counts + list.row * vocab + tokens[list.first + i];
    if (list.is_prompt)
      atomicOr(count, in_prompt);
    else
      atomicAdd(count, 1u);
  }
}

/// Adds biases to scores. No two are of the same token of a row. There is a thread for each bias.
static __global__ void bias_kernel(const RowBias* biases, int64_t count, int64_t vocab,
                                   float* scores) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float* const score = scores + biases[i].row * vocab + biases[i].column;
  *score = bounded(static_cast<double>(*score) + biases[i].bias);
}

/// scores = logits with each row's penalties; both may be the same memory. Grid: (rows, pieces).
static __global__ void penalise_kernel(const float* logits, const uint32_t* counts, int64_t vocab,
                                       const RowSampling* rows, float* scores) {
  const RowSampling row = rows[blockIdx.x];
  const int64_t begin = blockIdx.x * vocab, step = int64_t{gridDim.y} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.y} * blockDim.x + threadIdx.x; i < vocab; i += step)
    scores[begin + i] = penalised(logits[begin + i], counts[begin + i], row);
}

/// Returns the first of `count` weights whose sum with the weights before it is more than `limit`.
/// Without `Strict` the sum may also equal `limit`. Returns `count` if there is none. It stops
/// reading there. Every thread gets the result.
template <bool Strict>
__device__ int64_t first_to_reach(const float* sorted, int64_t count, double temperature,
                                  double limit, double* scratch) {
  const int warp = threadIdx.x / warp_size, lane = threadIdx.x % warp_size;
  const int num_warps = blockDim.x / warp_size;
  __shared__ int found;
  double before = 0;
  for (int64_t begin = 0; begin < count; begin += blockDim.x) {
    if (threadIdx.x == 0) found = blockDim.x;
    const int64_t i = begin + threadIdx.x;
    double sum = i < count ? relative_weight(sorted[i], sorted[0], temperature) : 0;
#pragma unroll
    for (int offset = 1; offset < warp_size; offset *= 2) {
      const double lower = __shfl_up_sync(all_lanes, sum, offset);
      if (lane >= offset) sum += lower;
    }
    if (lane == warp_size - 1) scratch[warp] = sum;
    __syncthreads();
    double total = before;
    for (int w = 0; w < num_warps; ++w) {
      if (w == warp) sum += total;
      total += scratch[w];
    }
    if (i < count && (Strict ? sum > limit : sum >= limit))
      atomicMin(&found, static_cast<int>(threadIdx.x));
    __syncthreads();
    const int first = found;
    __syncthreads();
    if (first < static_cast<int>(blockDim.x)) return begin + first;
    before = total;
  }
  return count;
}

/// Chooses a token for each row: the best, or the draw from the row's sorted scores. Grid: rows.
/// `scores`, `sorted` and `tokens_by_rank` are null if no row needs them.
static __global__ void choose_kernel(const RowSampling* rows, const RowSoftmax* softmax,
                                     const float* scores, const float* sorted,
                                     const int32_t* tokens_by_rank, int64_t vocab,
                                     int32_t* chosen) {
  __shared__ Best bests[warp_size];
  __shared__ double sums[warp_size];
  const RowSampling row = rows[blockIdx.x];
  int32_t token = no_token;
  if (exists(softmax[blockIdx.x])) {
    if (row.temperature == 0 && !row.adjusts) {
      token = softmax[blockIdx.x].best;
    } else if (row.temperature == 0) {
      token = best_of_row(scores + blockIdx.x * vocab, vocab, bests).token;
    } else {
      const float* const by_rank = sorted + blockIdx.x * vocab;
      const auto weight = [&](int64_t rank) {
        return relative_weight(by_rank[rank], by_rank[0], row.temperature);
      };
      const auto sum_of = [&](int64_t count) {
        double sum = 0;
        for (int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += weight(i);
        sum = block_sum(sum, sums);
        __syncthreads();
        return sum;
      };
      int64_t kept = row.top_k > 0 && row.top_k < vocab ? row.top_k : vocab;
      double sum = sum_of(kept);
      if (row.top_p < 1) {
        const int64_t last =
            first_to_reach<false>(by_rank, kept, row.temperature, row.top_p * sum, sums);
        kept = last < kept ? last + 1 : kept;
      }
      // Rounding may put the limit above all weights together: those of 0 are left out before.
      constexpr double least_weight = 0x1p-1074;
      kept = count_at_least(weight, kept, row.min_p > 0 ? row.min_p : least_weight);
      if (row.top_p < 1 || row.min_p > 0) sum = sum_of(kept);
      const int64_t rank =
          first_to_reach<true>(by_rank, kept - 1, row.temperature, row.uniform * sum, sums);
      if (sum > 0 && sum - sum == 0) token = tokens_by_rank[blockIdx.x * vocab + rank];
    }
  }
  if (threadIdx.x == 0) chosen[blockIdx.x] = token;
}

/// Writes logprobs[r] of tokens[r]. It is NaN if the row has no distribution or no token.
static __global__ void token_logprob_kernel(const float* logits, const RowSoftmax* softmax,
                                            const int32_t* tokens, int64_t rows, int64_t vocab,
                                            float* logprobs) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const bool known = exists(softmax[row]) && tokens[row] != no_token;
  logprobs[row] = known ? log_prob(logits[row * vocab + tokens[row]], softmax[row]) : not_a_number;
}

/// Writes the first `num_top` of each row's sorted logits. Grid: rows.
static __global__ void tops_kernel(const float* sorted, const int32_t* tokens_by_rank,
                                   const RowSoftmax* softmax, int64_t vocab, int64_t num_top,
                                   int32_t* top_tokens, float* top_logprobs) {
  const RowSoftmax row = softmax[blockIdx.x];
  const int64_t from = blockIdx.x * vocab, to = blockIdx.x * num_top;
  for (int64_t i = threadIdx.x; i < num_top; i += blockDim.x) {
    top_tokens[to + i] = exists(row) ? tokens_by_rank[from + i] : no_token;
    top_logprobs[to + i] = exists(row) ? log_prob(sorted[from + i], row) : not_a_number;
  }
}

/// Writes the log-probabilities of the whole vocabulary. Grid: (rows, pieces).
static __global__ void all_logprobs_kernel(const float* logits, const RowSoftmax* softmax,
                                           int64_t vocab, float* logprobs) {
  const RowSoftmax row = softmax[blockIdx.x];
  const int64_t begin = blockIdx.x * vocab, step = int64_t{gridDim.y} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.y} * blockDim.x + threadIdx.x; i < vocab; i += step)
    logprobs[begin + i] = exists(row) ? log_prob(logits[begin + i], row) : not_a_number;
}

}  // namespace pecia::kernels::cuda
