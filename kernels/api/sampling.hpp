// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "lib/core/tensor_view.hpp"

namespace pecia::kernels {

/// How a turn's next token is chosen; names and meanings as in vLLM's SamplingParams.
struct SamplingParams {
  float temperature = 0.0f;  ///< 0: greedy, the lowest id among equals
  int32_t top_k = 0;         ///< 0: all
  float top_p = 1.0f;        ///< smallest set of most likely tokens with at least this probability
  float min_p = 0.0f;        ///< at least this share of the most likely token's probability
  float repetition_penalty =
      1.0f;  ///< of tokens in prompt or output: divides positive, multiplies negative logits
  float presence_penalty = 0.0f;   ///< subtracted once from the logit of each token in the output
  float frequency_penalty = 0.0f;  ///< subtracted per occurrence in the output
};

/// What stands for a token where there is none.
inline constexpr int32_t no_token = -1;

/// One row to sample.
struct SamplingRow {
  SamplingParams params;
  double uniform;  ///< in [0, 1): the row's random number, addressed by (seed, request, turn, token
                   ///< index)
  std::span<const int32_t> prompt;  ///< tokens before the answer, for repetition_penalty
  std::span<const int32_t> output;  ///< the answer's tokens so far
};

/// tokens[r] and its log-probability under the plain softmax of the row's logits (before penalties,
/// temperature and filters). Order: penalties, temperature, top_k, top_p, min_p, then the token at
/// `uniform` of the cumulative distribution, most likely first (ties by id).
///
/// A row whose logits hold NaN or +infinity has no distribution: its token is no_token, its
/// log-probabilities NaN and its top tokens no_token, and other rows are not touched by that.
///
/// With num_top ≥ 0 also the num_top most likely tokens and their log-probabilities, most likely
/// first, ties by id; with num_top = −1 the log-probabilities of the whole vocabulary by token id.
struct SamplingArgs {
  TensorView logits;  ///< [rows, vocab] fp32, dense; its contents are lost
  std::span<const SamplingRow> rows;
  int64_t num_top = 0;
  std::span<int32_t> tokens;        ///< [rows], written
  std::span<float> token_logprobs;  ///< [rows], written
  std::span<int32_t> top_tokens;    ///< [rows · num_top], written; empty unless num_top > 0
  std::span<float>
      top_logprobs;  ///< [rows · num_top] or [rows · vocab], written; empty if num_top = 0
};

/// Log-probabilities of given tokens (prompt_logprobs): as above without choosing.
struct LogProbsArgs {
  TensorView logits;                ///< [rows, vocab] fp32, dense; its contents are lost
  std::span<const int32_t> tokens;  ///< [rows], whose log-probability is wanted
  int64_t num_top = 0;
  std::span<float> token_logprobs;  ///< [rows], written
  std::span<int32_t> top_tokens;    ///< as in SamplingArgs
  std::span<float> top_logprobs;
};

}  // namespace pecia::kernels
