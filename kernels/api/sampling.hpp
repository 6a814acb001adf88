// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "lib/base/core/tensor_view.hpp"

namespace pecia::kernels {

/// Lower temperatures are greedy, as in vLLM. Their reciprocals would leave the range of fp32.
inline constexpr float least_temperature = 1e-5f;

/// Scores after biases and penalties stay within ± this, so that no difference of two overflows
/// fp32. Masked tokens keep −infinity.
inline constexpr double largest_score = 1e30;

/// How a turn's next token is chosen. Names and meanings are the same as in vLLM's SamplingParams.
struct SamplingParams {
  float temperature = 0.0f;  ///< below least_temperature: greedy, the lowest id among equals
  int32_t top_k = 0;         ///< 0: all
  float top_p = 1.0f;        ///< smallest set of most likely tokens with at least this probability
  float min_p = 0.0f;        ///< at least this share of the most likely token's probability
  /// For tokens in the prompt or the output. It divides positive logits and multiplies negative
  /// ones.
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;   ///< subtracted once from the logit of each token in the output
  float frequency_penalty = 0.0f;  ///< subtracted per occurrence in the output

  bool greedy() const { return temperature < least_temperature; }
  bool penalises() const {
    return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0;
  }
};

/// Stands for a token where there is none.
inline constexpr int32_t no_token = -1;

/// Added to a token's logit, as in OpenAI's and vLLM's logit_bias.
struct LogitBias {
  int32_t token = 0;
  float bias = 0;  ///< finite

  bool operator==(const LogitBias&) const = default;
};

/// One row to sample.
struct SamplingRow {
  SamplingParams params;
  double uniform;  ///< random number in [0, 1), addressed by (seed, request, turn, token index)
  std::span<const int32_t> prompt;       ///< tokens before the answer, for repetition_penalty
  std::span<const int32_t> output;       ///< the answer's tokens so far
  std::span<const LogitBias> bias = {};  ///< each token at most once
};

/// Gives tokens[r] and its log-probability under the plain softmax of the row's logits, before
/// biases, penalties, temperature and filters. The order is: biases, penalties, temperature, top_k,
/// top_p, min_p.
/// Then it takes the token at `uniform` of the cumulative distribution, most likely first (ties by
/// id).
///
/// A row whose logits hold NaN or +infinity has no distribution. Its token is no_token, its
/// log-probabilities are NaN, and its top tokens are no_token. Other rows are not touched by that.
/// A token is never drawn that a mask has set to −infinity.
///
/// With num_top ≥ 0 it also gives the num_top most likely tokens and their log-probabilities, most
/// likely first, ties by id. With num_top = −1 it gives the log-probabilities of the whole
/// vocabulary by token id.
struct SamplingArgs {
  TensorView logits;  ///< [rows, vocab] fp32, dense; its contents are lost
  std::span<const SamplingRow> rows;
  int64_t num_top = 0;
  std::span<int32_t> tokens;        ///< [rows], written
  std::span<float> token_logprobs;  ///< [rows], written
  std::span<int32_t> top_tokens;    ///< [rows · num_top], written; empty unless num_top > 0
  /// [rows · num_top] or [rows · vocab], written. It is empty if num_top = 0.
  std::span<float> top_logprobs;
};

/// Gives the log-probabilities of given tokens (prompt_logprobs), as above but without choosing.
struct LogProbsArgs {
  TensorView logits;                ///< [rows, vocab] fp32, dense; its contents are lost
  std::span<const int32_t> tokens;  ///< [rows], tokens whose log-probability is wanted
  int64_t num_top = 0;
  std::span<float> token_logprobs;  ///< [rows], written
  std::span<int32_t> top_tokens;    ///< the same as in SamplingArgs
  std::span<float> top_logprobs;
};

}  // namespace pecia::kernels
