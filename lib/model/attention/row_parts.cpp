// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/row_parts.hpp"

#include <algorithm>

#include "lib/model/attention/pass_calls.hpp"

namespace pecia::attention {

void RowParts::begin_pass(const PassRows& rows, std::vector<parallel::RowRange> parts) {
  parts_ = std::move(parts);
  calls_.assign(steps_.cache().kinds().size(), {});
  if (parts_.empty()) return;
  PECIA_CHECK(rows.size() == 1, "parts of the rows of one of {} ranks", rows.size());
  const PassCalls calls(steps_, rows);
  for (const int kind : steps_.kinds()) {
    const SequenceRuns own = calls.in_cache(steps_.kind(kind));
    for (const parallel::RowRange& part : parts_) {
      std::vector<SequenceRows> sequences;  // on one rank a sequence's rows are all its new tokens
      int64_t row = 0;
      for (const parallel::PassSequence& sequence : rows.sequences()) {
        const int64_t begin = std::max(row, part.begin);
        const int64_t end = std::min(row + sequence.count, part.end), first = sequence.first - row;
        if (begin < end) sequences.push_back({sequence.sequence, {{first + begin, first + end}}});
        row += sequence.count;
      }
      calls.add(calls_[kind].emplace_back(), sequences, own);
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
