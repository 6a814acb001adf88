// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/sampling/ranking.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace pecia::kernels::cpu {

Ranking::Ranking(const float* scores, int32_t* ids, int64_t count)
    : scores_(scores), ids_(ids), count_(count) {
  std::iota(ids, ids + count, 0);
}

int32_t Ranking::at(int64_t rank) {
  if (rank >= sorted_) sort_until(std::max<int64_t>(rank + 1, std::max<int64_t>(64, 8 * sorted_)));
  return ids_[rank];
}

void Ranking::sort_until(int64_t count) {
  count = std::min(count, count_);
  if (count <= sorted_) return;
  const auto before = [this](int32_t a, int32_t b) {
    return scores_[a] > scores_[b] || (scores_[a] == scores_[b] && a < b);
  };
  if (count < count_ / 16) {  // one pass against a small heap
    std::partial_sort(ids_ + sorted_, ids_ + count, ids_ + count_, before);
  } else {
    if (count < count_) std::nth_element(ids_ + sorted_, ids_ + count, ids_ + count_, before);
    std::sort(ids_ + sorted_, ids_ + count, before);
  }
  sorted_ = count;
}

namespace {

/// Keeps a score in the range that sampling computes with; −infinity of a masked token stays.
float bounded(double score) {
  if (score == -std::numeric_limits<double>::infinity()) return static_cast<float>(score);
  return static_cast<float>(std::clamp(score, -largest_score, largest_score));
}

void penalise(const SamplingRow& row, int64_t first_token, int64_t count,
              const RowScratch& scratch) {
  constexpr int32_t prompt_only = -1;
  std::fill_n(scratch.counts, count, 0);
  const auto is_here = [&](int32_t token) {
    return token >= first_token && token < first_token + count;
  };
  if (row.params.repetition_penalty != 1)
    for (const int32_t token : row.prompt)
      if (is_here(token)) scratch.counts[token - first_token] = prompt_only;
  for (const int32_t token : row.output) {
    if (!is_here(token)) continue;
    int32_t& times = scratch.counts[token - first_token];
    times = std::max(times, 0) + 1;
  }

  const double repetition = row.params.repetition_penalty;
  const double presence = row.params.presence_penalty, frequency = row.params.frequency_penalty;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t times = scratch.counts[i];
    if (times == 0) continue;
    double score = scratch.scores[i];
    score = score > 0 ? score / repetition : score * repetition;
    if (times > 0) score -= presence + frequency * times;
    scratch.scores[i] = bounded(score);
  }
}

}  // namespace

bool adjusts(const SamplingRow& row) {
  return row.params.penalises() || !row.bias.empty();
}

void adjust(const SamplingRow& row, int64_t first_token, int64_t count, const RowScratch& scratch) {
  for (const auto& [token, bias] : row.bias)
    if (token >= first_token && token < first_token + count)
      scratch.scores[token - first_token] =
          bounded(double{scratch.scores[token - first_token]} + bias);
  if (row.params.penalises()) penalise(row, first_token, count, scratch);
}

}  // namespace pecia::kernels::cpu
