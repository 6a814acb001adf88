// SPDX-License-Identifier: Apache-2.0
#include "kernels/api/shortlist.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/reference/reference.hpp"

namespace pecia::kernels::reference {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

double log_sum(const std::vector<float>& logits) {
  const bool none =
      std::count(logits.begin(), logits.end(), -infinity) == static_cast<int64_t>(logits.size());
  if (none) return -infinity;
  double maximum = -infinity, sum = 0;
  for (const float logit : logits) {
    if (std::isnan(logit) || logit == infinity) return NAN;
    maximum = std::max<double>(maximum, logit);
  }
  for (const float logit : logits) sum += std::exp(logit - maximum);
  return maximum + std::log(sum);
}

float adjusted(const SamplingRow& row, int32_t token, double logit) {
  for (const LogitBias& each : row.bias)
    if (each.token == token) logit = bounded(logit + each.bias);
  const auto answered = std::count(row.output.begin(), row.output.end(), token);
  const auto asked = std::count(row.prompt.begin(), row.prompt.end(), token);
  const double repetition = row.params.repetition_penalty;
  if (answered + asked > 0) logit = logit > 0 ? logit / repetition : logit * repetition;
  if (answered > 0) logit -= row.params.presence_penalty;
  logit -= row.params.frequency_penalty * static_cast<double>(answered);
  return static_cast<float>(answered + asked > 0 ? bounded(logit) : logit);
}

}  // namespace

void shortlist(const ShortlistArgs& args) {
  const int64_t count = args.logits.size(1);
  for (int64_t r = 0; r < args.logits.rows(); ++r) {
    const std::vector<float> logits(row_of(args.logits, r), row_of(args.logits, r) + count);
    Candidate* const candidates = args.candidates.data() + r * args.num_candidates;
    TopToken* const tops = args.tops.data() + r * args.num_top;
    args.log_sums[r] = log_sum(logits);
    if (std::isnan(args.log_sums[r])) {
      std::fill_n(candidates, args.num_candidates, Candidate{no_token, NAN, NAN});
      std::fill_n(tops, args.num_top, TopToken{no_token, NAN});
      continue;
    }
    std::vector<Candidate> all;
    for (int64_t i = 0; i < count; ++i) {
      const auto token = static_cast<int32_t>(args.first_token + i);
      const float score =
          args.wanted.empty() ? adjusted(args.rows[r], token, logits[i]) : logits[i];
      all.push_back({token, score, logits[i]});
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; });
    for (int64_t i = 0; i < args.num_top; ++i) tops[i] = {all[i].token, all[i].logit};
    if (!args.wanted.empty()) {
      const auto found = std::find_if(all.begin(), all.end(), [&](const Candidate& each) {
        return each.token == args.wanted[r];
      });
      candidates[0] = found != all.end() ? *found : Candidate{no_token, -infinity, -infinity};
      continue;
    }
    std::sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
      return a.score > b.score || (a.score == b.score && a.token < b.token);
    });
    std::copy_n(all.begin(), args.num_candidates, candidates);
  }
}

}  // namespace pecia::kernels::reference
