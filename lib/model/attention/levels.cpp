// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/levels.hpp"

#include <algorithm>

#include "lib/model/attention/pass_calls.hpp"

namespace pecia::attention {

using parallel::PassSequence;
using parallel::SequenceId;

void Levels::begin_pass(const PassRows& rows, std::span<const kernels::Window>) {
  PECIA_CHECK(rows.team().holders == 0 && !rows.places_any(),
              "a pass by levels needs rows on all ranks");
  std::vector<SequenceParts> sequences;
  std::vector<int64_t> first_row(rows.size());
  for (const PassSequence& of : rows.sequences()) {
    SequenceParts& sequence = sequences.emplace_back(parts_of(rows, of));
    PartPlaces& here = sequence.here[rows.index()];
    sequence.tokens.first_row = here.first_row = first_row[rows.index()];
    for (int rank = 0; rank < rows.size(); ++rank) {
      const int64_t count = sequence.parts[rank].rows;
      const auto begin = rows.positions(rank).begin() + first_row[rank];
      sequence.tokens.positions.emplace_back(begin, begin + count);
      first_row[rank] += count;
    }
  }
  const PassCalls calls(steps_, rows);
  begin(rows, std::move(sequences), calls.call(rows.index(), calls.in_cache(steps_.kind(0))));
}

/// The numbers of the sequence's tokens by rank, and where the cached ones are here. The map has the
/// pass's rows already.
SequenceParts Levels::parts_of(const PassRows& rows, const PassSequence& of) const {
  PECIA_CHECK(of.owner == PassSequence::contiguous, "rows of sequence {} are not contiguous",
              of.sequence);
  SequenceParts sequence;
  sequence.here.resize(rows.size());
  const int64_t kept_from = of.count - TokenImportance::last_samples;  // rows from here on are kept
  int64_t before = 0;
  for (int rank = 0; rank < rows.size(); ++rank) {
    parallel::PartTokens& part = sequence.parts.emplace_back();
    part.rows = parallel::num_rows({of}, rows.team(), rank);
    const auto cached = [&](SequenceId member) {  // before the pass
      return rows.held(member, rank) - (member == of.sequence ? part.rows : 0);
    };
    for (const SequenceId member : rows.lineage(of.sequence)) {
      part.cached += cached(member);
      if (rank != rows.index()) continue;
      const auto& slots = rows.ledger().slots(member);
      PartPlaces& here = sequence.here[rank];
      const auto held = part_of(slots, 0, cached(member));
      here.cached_slots.insert(here.cached_slots.end(), held.begin(), held.end());
      if (member == of.sequence) here.row_slots = part_of(slots, cached(member), part.rows);
    }
    before += part.rows;
    part.last = std::clamp<int64_t>(before - kept_from, 0, part.rows);
    keep_ends(part);
  }
  if (most_sinks() > 0) find_sinks(rows, of, sequence);
  return sequence;
}

/// The sequence's first tokens are always seen: many heads pay them most of their attention.
void Levels::find_sinks(const PassRows& rows, const PassSequence& of,
                        SequenceParts& sequence) const {
  const SequenceId begins = rows.lineage(of.sequence).front();
  for (int rank = 0; rank < rows.size(); ++rank) {
    parallel::PartTokens& part = sequence.parts[rank];
    if (of.first == 0) {
      if (part.rows == 0) continue;
      sequence.sink_part = rank;
      sequence.sinks = std::min(part.rows, most_sinks());
      part.first = std::max(part.first, sequence.sinks);
      return;
    }
    const auto& ranges = rows.ranges(begins, rank);
    if (ranges.empty() || ranges.front().begin != 0) continue;
    sequence.sink_part = rank;
    // The rows of the pass, from of.first on, may have made the range longer.
    sequence.sinks =
        ranges.front().stride == 1 ? std::min({ranges.front().count, of.first, most_sinks()}) : 1;
    part.first_cached = sequence.sinks;
    return;
  }
}

}  // namespace pecia::attention
