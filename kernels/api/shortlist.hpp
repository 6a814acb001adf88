// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <span>

#include "kernels/api/sampling.hpp"

namespace pecia::kernels {

/// A token that may be chosen. no_token, NaN and NaN where the row has nothing to choose from;
/// no_token, −inf and −inf where a wanted token is not in the part.
struct Candidate {
  int32_t token;
  float score;  ///< its logit after penalties
  float logit;
};

/// One of the most likely tokens.
struct TopToken {
  int32_t token;
  float logit;
};

/// What greedy and top-k sampling and log-probabilities need of the part of a row of logits that
/// one rank has: with those of the other parts it stands for the row.
///
///     log_sums[r]      = log Σ exp(logits[r, i])   natural, accumulated in fp64; −inf where all
///                        logits are, NaN where one of them is NaN or +infinity
///     candidates[r, :] = the num_candidates tokens with the best scores, best first, ties by id
///     tops[r, :]       = the num_top tokens with the largest logits, likewise
///
/// With `wanted` in place of `rows` nothing is chosen: candidates[r, 0] is the token wanted, if the
/// part has it.
struct ShortlistArgs {
  TensorView logits;  ///< [rows, part] fp32, dense: of first_token, …
  int64_t first_token = 0;
  std::span<const SamplingRow>
      rows;                         ///< penalties and the tokens they act on; the rest is not read
  std::span<const int32_t> wanted;  ///< [rows] in place of `rows`, then num_candidates = 1
  int64_t num_candidates = 1;       ///< ≥ 1, ≤ part
  int64_t num_top = 0;              ///< ≤ part
  std::span<double> log_sums;       ///< [rows], written
  std::span<Candidate> candidates;  ///< [rows · num_candidates], written
  std::span<TopToken> tops;         ///< [rows · num_top], written
};

}  // namespace pecia::kernels
