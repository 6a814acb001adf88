// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/head_levels.hpp"

#include <algorithm>

namespace pecia::attention {

using parallel::GlobalRange;
using parallel::PassSequence;
using parallel::SequenceId;
using parallel::SlotRange;

namespace {

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

void HeadLevels::begin_pass(const PassRows& rows, std::span<const kernels::Window>) {
  AttentionCall own;
  own.positions = rows.positions();
  std::vector<SequenceParts> sequences;
  int64_t row = 0;
  for (const PassSequence& of : rows.sequences()) {
    sequences.push_back(cut_into_parts(rows, of, row, own));
    row += of.count;
  }
  begin(rows, std::move(sequences), std::move(own));
}

/// Adds the sequence's attention of each part to itself to `own`. The map has the pass's rows, and
/// `first_row` is the first one's row of q.
SequenceParts HeadLevels::cut_into_parts(const PassRows& rows, const PassSequence& of,
                                         int64_t first_row, AttentionCall& own) const {
  std::vector<SlotRange> slots;  // of all tokens, by position
  for (const SequenceId member : rows.lineage(of.sequence)) {
    const auto held = part_of(rows.ledger().slots(member), 0, rows.held(member, rows.index()));
    slots.insert(slots.end(), held.begin(), held.end());
  }
  const int64_t end = of.first + of.count,
                head_stride = steps_.cache().capacity() * steps_.head_dim();
  PECIA_CHECK(end > 0 && of.owner == PassSequence::contiguous && !rows.places_any(),
              "{} rows of sequence {} in parts", of.count, of.sequence);
  SequenceParts sequence;
  sequence.tokens.first_row = first_row;
  sequence.tokens.positions.emplace_back(of.count);
  std::ranges::generate(sequence.tokens.positions[0], [at = of.first]() mutable { return at++; });
  for (const GlobalRange& whole : parts_of(of, num_parts())) {
    const int64_t first = std::clamp(of.first, whole.begin, whole.end);  // of its rows
    parallel::PartTokens& part = sequence.parts.emplace_back();
    part.cached = first - whole.begin, part.rows = whole.end - first;
    const int64_t kept_from = end - TokenImportance::last_samples;
    part.last = std::clamp<int64_t>(whole.end - kept_from, 0, part.rows);
    keep_ends(part);
    const auto held = part_of(slots, whole.begin, whole.size());
    PartPlaces& here = sequence.here.emplace_back();
    here.cached_slots = part_of(held, 0, part.cached);
    here.row_slots = part_of(held, part.cached, part.rows);
    here.first_row = first_row + std::max<int64_t>(0, first - of.first);
    if (part.rows == 0) continue;
    own.items.push_back({here.first_row, part.rows, std::ssize(own.runs), 0});
    steps_.add_runs(own.runs, {{whole.begin, whole.size()}}, held, steps_.shape(), 0, head_stride);
    own.items.back().num_runs = std::ssize(own.runs) - own.items.back().first_run;
    steps_.count_flops(own, {{first, whole.end}}, {{whole.begin, whole.size()}});
  }
  keep_first(of, sequence);
  return sequence;
}

/// The sequence's first tokens are always seen, as in Levels.
void HeadLevels::keep_first(const PassSequence& of, SequenceParts& sequence) const {
  const int64_t most = most_sinks();
  if (most == 0) return;
  const auto begins = std::ranges::find_if(
      sequence.parts, [](const parallel::PartTokens& part) { return part.cached + part.rows > 0; });
  sequence.sink_part = static_cast<int>(begins - sequence.parts.begin());
  begins->first_cached = std::min(begins->cached, most);
  sequence.sinks = of.first > 0 ? begins->first_cached : std::min(begins->rows, most);
  if (of.first == 0) begins->first = std::max(begins->first, sequence.sinks);
}

}  // namespace pecia::attention
