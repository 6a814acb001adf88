// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/schedule/pipeline.hpp"

#include <algorithm>
#include <cmath>

#include "lib/base/core/error.hpp"

namespace pecia::schedule {
namespace {

/// Work of `count` tokens from position `first` on.
double work_of_rows(const ChunkRule& rule, double first, double count) {
  return rule.row_work * count + rule.pair_work * count * (first + 0.5 * count);
}

/// Tokens from position `first` on that are so much work.
double rows_of_work(const ChunkRule& rule, double first, double work) {
  const double of_row = rule.row_work + rule.pair_work * first;
  if (rule.pair_work == 0) return work / of_row;
  return (std::sqrt(of_row * of_row + 2 * rule.pair_work * work) - of_row) / rule.pair_work;
}

}  // namespace

ChunkRule chunk_rule(const SchedulerLimits& limits, bool alone) {
  constexpr int64_t least = 128;             // in fewer rows products are slower
  constexpr int64_t chunks_of_a_stage = 16;  // then stages wait for about a sixteenth of the time
  return {.row_work = limits.row_work,
          .pair_work = limits.pair_work,
          .most = limits.max_batch_tokens,
          .least = least,
          .unit = limits.chunk_unit(),
          .chunks = alone ? chunks_of_a_stage * limits.stages : 1};
}

int64_t chunk_of_equal_work(const PipelinedPrompt& prompt, const ChunkRule& rule) {
  PECIA_CHECK(rule.unit >= 1 && rule.most >= 1 && rule.chunks >= 1 && rule.row_work > 0,
              "chunks of {} to {} tokens in units of {}", rule.least, rule.most, rule.unit);
  const int64_t left = prompt.count - prompt.planned;
  const auto first = static_cast<double>(prompt.first);
  const double whole = work_of_rows(rule, first, static_cast<double>(prompt.count));
  const double work = std::min(work_of_rows(rule, first, static_cast<double>(rule.most)),
                               whole / static_cast<double>(rule.chunks));
  const double rows = rows_of_work(rule, first + static_cast<double>(prompt.planned), work);
  const auto wanted = std::max(static_cast<int64_t>(std::ceil(rows)), rule.least);
  const int64_t in_units = (wanted + rule.unit - 1) / rule.unit * rule.unit;
  const int64_t most = rule.most < rule.unit ? rule.most : rule.most / rule.unit * rule.unit;
  return std::min({left, in_units, most});
}

std::vector<double> shares_of_stages(std::span<const double> stage_work, double head_work,
                                     int64_t rows, int64_t outputs) {
  std::vector<double> shares;
  double sum = 0;
  for (const double work : stage_work) shares.push_back(work * static_cast<double>(rows));
  shares.back() += head_work * static_cast<double>(outputs);
  for (const double share : shares) sum += share;
  for (double& share : shares) share /= sum;
  return shares;
}

int64_t answers_of_group(int64_t answers, int stages) {
  return (answers + stages - 1) / stages;
}

}  // namespace pecia::schedule
