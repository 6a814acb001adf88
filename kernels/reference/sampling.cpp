// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {
namespace {

double log_sum_exp(std::span<const double> scores) {
  const double max = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (const double score : scores) sum += std::exp(score - max);
  return max + std::log(sum);
}

/// Token ids, highest score first, ties by id.
std::vector<int32_t> ranking(std::span<const double> scores) {
  std::vector<int32_t> ids(scores.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
  return ids;
}

void adjust(const SamplingRow& row, std::span<double> scores) {
  for (const auto& [token, bias] : row.bias) scores[token] = bounded(scores[token] + bias);
  std::set<int32_t> seen(row.output.begin(), row.output.end());
  const std::set<int32_t> answered = seen;
  seen.insert(row.prompt.begin(), row.prompt.end());
  const double repetition = row.params.repetition_penalty;
  if (repetition != 1)
    for (const int32_t token : seen)
      scores[token] = scores[token] > 0 ? scores[token] / repetition : scores[token] * repetition;
  for (const int32_t token : row.output) scores[token] -= row.params.frequency_penalty;
  for (const int32_t token : answered) scores[token] -= row.params.presence_penalty;
  for (const int32_t token : seen) scores[token] = bounded(scores[token]);
}

int32_t choose(const SamplingRow& row, std::vector<double> scores) {
  const SamplingParams& params = row.params;
  adjust(row, scores);
  const std::vector<int32_t> ids = ranking(scores);
  if (params.greedy()) return ids[0];

  size_t kept = ids.size();
  if (params.top_k > 0) kept = std::min(kept, static_cast<size_t>(params.top_k));
  std::vector<double> weights(kept);
  double sum = 0;
  for (size_t i = 0; i < kept; ++i)
    sum += weights[i] = std::exp((scores[ids[i]] - scores[ids[0]]) / params.temperature);
  if (!(sum > 0) || !std::isfinite(sum)) return no_token;
  if (params.top_p < 1) {
    double below = 0;
    size_t count = 0;
    while (count < kept && below < params.top_p * sum) below += weights[count++];
    kept = count;
  }
  while (weights[kept - 1] < params.min_p || weights[kept - 1] == 0) --kept;

  const double target = row.uniform * std::accumulate(weights.begin(), weights.begin() + kept, 0.0);
  double below = 0;
  for (size_t i = 0; i + 1 < kept; ++i)
    if ((below += weights[i]) > target) return ids[i];
  return ids[kept - 1];
}

/// The plain softmax of row `r`: writes the tops, returns the normaliser; not finite where the row
/// has no distribution.
template <typename Args>
double write_tops(const Args& args, int64_t r, std::span<const double> scores) {
  const double normaliser = log_sum_exp(scores);
  if (!std::isfinite(normaliser)) {
    const auto width = static_cast<int64_t>(args.num_top < 0 ? scores.size() : args.num_top);
    for (int64_t i = r * width; i < (r + 1) * width; ++i) {
      args.top_logprobs[i] = NAN;
      if (args.num_top > 0) args.top_tokens[i] = no_token;
    }
    return normaliser;
  }
  const auto logprob = [&](int64_t token) {
    return static_cast<float>(scores[token] - normaliser);
  };
  const auto vocab = static_cast<int64_t>(scores.size());
  if (args.num_top < 0)
    for (int64_t token = 0; token < vocab; ++token)
      args.top_logprobs[r * vocab + token] = logprob(token);
  if (args.num_top > 0) {
    const std::vector<int32_t> ids = ranking(scores);
    for (int64_t i = 0; i < args.num_top; ++i) {
      args.top_tokens[r * args.num_top + i] = ids[i];
      args.top_logprobs[r * args.num_top + i] = logprob(ids[i]);
    }
  }
  return normaliser;
}

std::vector<double> scores_of(const TensorView& logits, int64_t r) {
  return {row_of(logits, r), row_of(logits, r) + logits.size(1)};
}

}  // namespace

void sample(const SamplingArgs& args) {
  for (int64_t r = 0; r < args.logits.rows(); ++r) {
    const std::vector<double> scores = scores_of(args.logits, r);
    const double normaliser = write_tops(args, r, scores);
    const bool exists = std::isfinite(normaliser);
    args.tokens[r] = exists ? choose(args.rows[r], scores) : no_token;
    args.token_logprobs[r] =
        args.tokens[r] != no_token ? static_cast<float>(scores[args.tokens[r]] - normaliser) : NAN;
  }
}

void log_probs(const LogProbsArgs& args) {
  for (int64_t r = 0; r < args.logits.rows(); ++r) {
    const std::vector<double> scores = scores_of(args.logits, r);
    const double normaliser = write_tops(args, r, scores);
    args.token_logprobs[r] =
        std::isfinite(normaliser) ? static_cast<float>(scores[args.tokens[r]] - normaliser) : NAN;
  }
}

}  // namespace pecia::kernels::reference
