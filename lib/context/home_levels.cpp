// SPDX-License-Identifier: Apache-2.0
/// RingAttention by levels where a rank has all tokens of its heads (TP). A sequence, its cached
/// tokens and its rows together, counts as cut into consecutive equal parts, one for each of the
/// ranks. Source: CSPS, "SP-TP".

#include <algorithm>

#include "lib/context/ring_attention.hpp"

namespace pecia::context {

using parallel::GlobalRange;
using parallel::PassSequence;
using parallel::SequenceId;
using parallel::SlotRange;

namespace {

std::vector<int64_t> one_by_one(const std::vector<SlotRange>& ranges) {
  std::vector<int64_t> slots;
  for (const SlotRange& range : ranges)
    for (int64_t slot = range.begin; slot < range.end; ++slot) slots.push_back(slot);
  return slots;
}

/// The parts of all tokens up to the end of the rows, as positions. Some may be empty.
std::vector<GlobalRange> parts_of(const PassSequence& rows, int count) {
  std::vector<GlobalRange> parts;
  for (int part = 0; part < count; ++part) {
    const parallel::RowRange of = parallel::row_part({0, rows.first + rows.count}, count, part);
    parts.push_back({of.begin, of.end});
  }
  return parts;
}

}  // namespace

/// Adds the sequence's attention of each part to itself to `within_parts_`. The map has the pass's
/// rows, and `first_row` is the first one's row of q.
LevelAttention::Sequence RingAttention::cut_into_parts(const PassSequence& of, int64_t first_row) {
  std::vector<SlotRange> slots;  // of all tokens, by position
  for (const SequenceId member : ledger_.map().lineage(of.sequence)) {
    const auto own = part_of(ledger_.slots(member), 0, held(member, index_));
    slots.insert(slots.end(), own.begin(), own.end());
  }
  const int64_t end = of.first + of.count, head_stride = cache_.capacity() * steps_.head_dim();
  PECIA_CHECK(end > 0 && of.owner == PassSequence::contiguous && placed_.empty(),
              "{} rows of sequence {} in parts", of.count, of.sequence);
  LevelAttention::Sequence sequence;
  sequence.tokens.first_row = first_row;
  sequence.tokens.positions.emplace_back(of.count);
  std::ranges::generate(sequence.tokens.positions[0], [at = of.first]() mutable { return at++; });
  for (const GlobalRange& whole : parts_of(of, levels_->num_parts())) {
    const int64_t first = std::clamp(of.first, whole.begin, whole.end);  // of its rows
    parallel::PartTokens& part = sequence.parts.emplace_back();
    part.cached = first - whole.begin, part.rows = whole.end - first;
    const int64_t kept_from = end - TokenImportance::last_samples;
    part.last = std::clamp<int64_t>(whole.end - kept_from, 0, part.rows);
    const auto own = part_of(slots, whole.begin, whole.size());
    sequence.here.push_back({one_by_one(part_of(own, 0, part.cached)),
                             one_by_one(part_of(own, part.cached, part.rows)),
                             first_row + std::max<int64_t>(0, first - of.first)});
    AttentionCall& call = within_parts_;
    if (part.rows == 0) continue;
    call.items.push_back({sequence.here.back().first_row, part.rows, std::ssize(call.runs), 0});
    steps_.add_runs(call.runs, {{whole.begin, whole.size()}}, own, 0, head_stride);
    call.items.back().num_runs = std::ssize(call.runs) - call.items.back().first_run;
    steps_.count_flops(call, {{first, whole.end}}, {{whole.begin, whole.size()}});
  }
  if (levels_->keeps_borders())
    for (parallel::PartTokens& part : sequence.parts) keep_ends(part);
  const int64_t most = levels_->most_sinks();
  if (most == 0) return sequence;
  const auto begins = std::ranges::find_if(
      sequence.parts, [](const parallel::PartTokens& part) { return part.cached + part.rows > 0; });
  sequence.sink_part = static_cast<int>(begins - sequence.parts.begin());
  begins->first_cached = std::min(begins->cached, most);
  sequence.sinks = of.first > 0 ? begins->first_cached : std::min(begins->rows, most);
  if (of.first == 0) begins->first = std::max(begins->first, sequence.sinks);
  return sequence;
}

std::vector<LevelAttention::Sequence> RingAttention::home_sequences(const Pass& pass) {
  within_parts_ = {};
  within_parts_.positions = positions();
  std::vector<LevelAttention::Sequence> sequences;
  int64_t row = 0;
  for (const PassSequence& of : pass) {
    sequences.push_back(cut_into_parts(of, row));
    row += of.count;
  }
  return sequences;
}

}  // namespace pecia::context
