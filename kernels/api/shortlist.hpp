// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>

#include "kernels/api/sampling.hpp"

namespace pecia::kernels {

/// A token that may be chosen. It is {no_token, NaN, NaN} if the row has nothing to choose from. It
/// is {no_token, −inf, −inf} if a wanted token is not in the part.
struct Candidate {
  int32_t token;
  float score;  ///< its logit after biases and penalties
  float logit;
};

/// One of the most likely tokens.
struct TopToken {
  int32_t token;
  float logit;
};

/// Gives what greedy and top-k sampling and log-probabilities need from the part of a row of logits
/// that one rank has. Together with the results of the other parts it stands for the row.
///
///     log_sums[r]      = log Σ exp(logits[r, i])   natural, accumulated in fp64; −inf where all
///                        logits are, NaN where one of them is NaN or +infinity
///     candidates[r, :] = the num_candidates tokens with the best scores, best first, ties by id
///     tops[r, :]       = the num_top tokens with the largest logits, largest first, ties by id
///
/// With `wanted` in place of `rows` nothing is chosen. candidates[r, 0] is the wanted token, if the
/// part has it.
struct ShortlistArgs {
  TensorView logits;  ///< [rows, part] fp32, dense; logits of first_token, …
  int64_t first_token = 0;
  /// The biases, the penalties and the tokens that they act on are read. The rest is not.
  std::span<const SamplingRow> rows;
  std::span<const int32_t> wanted;  ///< [rows], in place of `rows`; then num_candidates = 1
  int64_t num_candidates = 1;       ///< ≥ 1, ≤ part
  int64_t num_top = 0;              ///< ≤ part
  std::span<double> log_sums;       ///< [rows], written
  std::span<Candidate> candidates;  ///< [rows · num_candidates], written
  std::span<TopToken> tops;         ///< [rows · num_top], written
};

}  // namespace pecia::kernels
