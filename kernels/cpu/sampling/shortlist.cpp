// SPDX-License-Identifier: Apache-2.0
#include "kernels/api/shortlist.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cpu/sampling/ranking.hpp"
#include "kernels/cpu/sampling/vocabulary.hpp"
#include "kernels/cpu/shared/parallel.hpp"

namespace pecia::kernels::cpu {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// log Σ exp(logits); −inf where all of them are, NaN where the row has no distribution.
double log_sum(const float* logits, int64_t count) {
  const int64_t best = argmax(logits, count);
  if (best == count) return NAN;
  if (logits[best] == -infinity) {
    const bool none = std::all_of(logits, logits + count, [](float l) { return l == -infinity; });
    return none ? -infinity : NAN;
  }
  return logits[best] + std::log(sum_exp(logits, count, logits[best], 1.0f));
}

/// The best by `scores`, which are indexed as `logits`.
void choose(const float* scores, const float* logits, int64_t count, int64_t first_token,
            int32_t* ids, std::span<Candidate> candidates) {
  const auto candidate = [&](int64_t i) {
    return Candidate{static_cast<int32_t>(first_token + i), scores[i], logits[i]};
  };
  if (candidates.size() == 1) {
    candidates[0] = candidate(argmax(scores, count));
    return;
  }
  Ranking ranking(scores, ids, count);
  ranking.sort_until(static_cast<int64_t>(candidates.size()));
  for (size_t i = 0; i < candidates.size(); ++i) candidates[i] = candidate(ranking.at(i));
}

void shorten(const ShortlistArgs& args, int64_t r, const RowScratch& scratch) {
  const int64_t count = args.logits.size(1);
  const auto* logits = static_cast<const float*>(args.logits.row(r));
  const auto candidates = args.candidates.subspan(r * args.num_candidates, args.num_candidates);
  const auto tops = args.tops.subspan(r * args.num_top, args.num_top);
  args.log_sums[r] = log_sum(logits, count);
  if (std::isnan(args.log_sums[r])) {
    std::fill(candidates.begin(), candidates.end(), Candidate{no_token, NAN, NAN});
    std::fill(tops.begin(), tops.end(), TopToken{no_token, NAN});
    return;
  }
  if (!tops.empty()) {
    Ranking ranking(logits, scratch.ids, count);
    ranking.sort_until(args.num_top);
    for (int64_t i = 0; i < args.num_top; ++i)
      tops[i] = {static_cast<int32_t>(args.first_token + ranking.at(i)), logits[ranking.at(i)]};
  }
  if (!args.wanted.empty()) {
    const int64_t i = args.wanted[r] - args.first_token;
    candidates[0] = i >= 0 && i < count ? Candidate{args.wanted[r], logits[i], logits[i]}
                                        : Candidate{no_token, -infinity, -infinity};
    return;
  }
  const float* scores = logits;
  if (adjusts(args.rows[r])) {
    std::copy_n(logits, count, scratch.scores);
    adjust(args.rows[r], args.first_token, count, scratch);
    scores = scratch.scores;
  }
  choose(scores, logits, count, args.first_token, scratch.ids, candidates);
}

}  // namespace

void shortlist(const ShortlistArgs& args, const device::Stream& stream, Workspace& workspace) {
  const int64_t count = args.logits.size(1);
  workspace.reserve_threads(stream.num_threads(), RowScratch::bytes(count));
  for_each_task(stream, args.logits.rows(), [&](int64_t r, const Worker& worker) {
    shorten(args, r, RowScratch(workspace.of_thread(worker.thread), count));
  });
}

}  // namespace pecia::kernels::cpu
