// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/row_parts.hpp"

#include <algorithm>

#include "lib/model/attention/pass_calls.hpp"

namespace pecia::attention {

namespace {

/// The keys at positions before `end`.
std::vector<kernels::KeyRun> keys_before(const std::vector<kernels::KeyRun>& runs, int64_t end) {
  std::vector<kernels::KeyRun> before;
  for (kernels::KeyRun run : runs) {
    run.num_keys =
        parallel::indices_between({run.position, run.num_keys, run.stride}, 0, end).count;
    if (run.num_keys > 0) before.push_back(run);
  }
  return before;
}

}  // namespace

void RowParts::begin_pass(const PassRows& rows, std::vector<parallel::RowRange> parts) {
  parts_ = std::move(parts);
  calls_.assign(steps_.cache().kinds().size(), {});
  if (parts_.empty()) return;
  PECIA_CHECK(rows.size() == 1, "parts of the rows of one of {} ranks", rows.size());
  const PassCalls calls(steps_, rows);
  for (const int kind : steps_.kinds()) {
    const SequenceRuns own = calls.in_cache(steps_.kind(kind));
    for (const parallel::RowRange& part : parts_) {
      SequenceRuns seen = own;
      std::vector<SequenceRows> sequences;  // on one rank a sequence's rows are all its new tokens
      int64_t row = 0;
      for (const parallel::PassSequence& sequence : rows.sequences()) {
        const int64_t begin = std::max(row, part.begin);
        const int64_t end = std::min(row + sequence.count, part.end), first = sequence.first - row;
        row += sequence.count;
        if (begin >= end) continue;
        sequences.push_back({sequence.sequence, {{first + begin, first + end}}});
        auto& runs = seen[rows.key_index(sequence.sequence)];
        runs = keys_before(runs, first + end);
      }
      calls.add(calls_[kind].emplace_back(), sequences, seen);
    }
  }
}

void RowParts::run(int64_t layer, size_t part, const TensorView& q, const TensorView& out) {
  const parallel::RowRange& rows = parts_[part];
  const auto of = [&](const TensorView& all) { return all.slice_rows(rows.begin, rows.size()); };
  const Partial to = steps_.results(of(out));
  const auto& calls = calls_[steps_.cache().kind(layer)];
  steps_.attend(layer, calls[part], of(q), steps_.cached(layer), to);
  steps_.add_sinks(layer, to);
}

}  // namespace pecia::attention
