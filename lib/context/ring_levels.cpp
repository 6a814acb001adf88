// SPDX-License-Identifier: Apache-2.0
/// RingAttention by levels: each rank attends its own part of the tokens while others' tokens
/// travel, and then what higher levels give it. Source: CSPS, "levels".

#include <algorithm>

#include "lib/context/ring_attention.hpp"

namespace pecia::context {

using parallel::PassSequence;
using parallel::SequenceId;
using parallel::SlotRange;

/// The tokens of the pass's sequences by rank, before the pass's rows are in the map.
std::vector<LevelAttention::Sequence> RingAttention::level_sequences(const Pass& pass) const {
  PECIA_CHECK(levels_.has_value() && team_.holders == 0 && placed_.empty(),
              "a pass by levels needs a setting, and rows on all ranks");
  std::vector<LevelAttention::Sequence> sequences;
  const parallel::KvMap& map = ledger_.map();
  std::vector<int64_t> first_row(size());
  auto slot = slots().begin();
  for (const PassSequence& of : pass) {
    PECIA_CHECK(of.owner == PassSequence::contiguous, "rows of sequence {} are not contiguous",
                of.sequence);
    LevelAttention::Sequence& sequence = sequences.emplace_back();
    sequence.tokens.first_row = first_row[index_];
    sequence.here.resize(size());
    LevelAttention::Tokens& here = sequence.here[index_];
    here.first_row = first_row[index_];
    int64_t before = 0;
    for (int rank = 0; rank < size(); ++rank) {
      parallel::PartTokens& part = sequence.parts.emplace_back();
      for (const SequenceId member : map.lineage(of.sequence))
        part.cached += map.held(member, team_.instances[rank]);
      part.rows = parallel::num_rows({of}, team_, rank);
      const auto begin = query_positions_[rank].begin() + first_row[rank];
      sequence.tokens.positions.emplace_back(begin, begin + part.rows);
      first_row[rank] += part.rows;
      const int64_t last = of.count - TokenImportance::last_samples;  // rows from here on are kept
      before += part.rows;
      part.last = std::clamp<int64_t>(before - last, 0, part.rows);
    }
    keep_borders(of, sequence);
    for (const SequenceId member : map.lineage(of.sequence))
      for (const SlotRange& range :
           part_of(ledger_.slots(member), 0, map.held(member, ledger_.instance())))
        for (int64_t at = range.begin; at < range.end; ++at) here.cached_slots.push_back(at);
    const int64_t rows = sequence.parts[index_].rows;
    here.row_slots.assign(slot, slot + rows);
    slot += rows;
  }
  return sequences;
}

/// Neighbours of a border between ranks always see each other.
void RingAttention::keep_ends(parallel::PartTokens& part) {
  part.first = std::min(part.rows, LevelAttention::border);
  part.last = std::max(part.last, part.first);
}

/// The sequence's first tokens are always seen: many heads pay them most of their attention.
void RingAttention::keep_borders(const PassSequence& of, LevelAttention::Sequence& sequence) const {
  if (levels_->keeps_borders())
    for (parallel::PartTokens& part : sequence.parts) keep_ends(part);
  if (levels_->most_sinks() == 0) return;
  const parallel::KvMap& map = ledger_.map();
  const SequenceId begins = map.lineage(of.sequence).front();
  for (int rank = 0; rank < size(); ++rank) {
    parallel::PartTokens& part = sequence.parts[rank];
    if (of.first == 0) {
      if (part.rows == 0) continue;
      sequence.sink_part = rank;
      sequence.sinks = std::min(part.rows, levels_->most_sinks());
      part.first = std::max(part.first, sequence.sinks);
      return;
    }
    const auto& ranges = map.ranges(begins, team_.instances[rank]);
    if (ranges.empty() || ranges.front().begin != 0) continue;
    sequence.sink_part = rank;
    sequence.sinks =
        ranges.front().stride == 1 ? std::min(ranges.front().count, levels_->most_sinks()) : 1;
    part.first_cached = sequence.sinks;
    return;
  }
}

/// Adds where this rank's keys lie, which the map says with the pass's rows in it.
void RingAttention::add_level_runs(const Pass& pass,
                                   std::vector<LevelAttention::Sequence>& sequences) const {
  const SequenceRuns own = runs_in_cache(Keeps::all);
  for (size_t i = 0; i < pass.size(); ++i)
    for (const SequenceId member : ledger_.map().lineage(pass[i].sequence)) {
      const auto runs = of_sequence(member, own);
      auto& all = sequences[i].tokens.runs;
      all.insert(all.end(), runs.begin(), runs.end());
    }
}

/// A layer with a window needs the positions of keys, and few of them: there the keys go round.
void RingAttention::run_levels(int64_t layer, const TensorView& q, const TensorView& k,
                               const TensorView& v, const TensorView& out) {
  const Partial to{out, steps_.lse(lse_, q.rows())};
  if (windows_[layer] > 0) {
    const int64_t sent_before = ring_->traffic().bytes;
    run_pass_kv(layer, q, k, v, out);
    count_window(layer, sent_before);
  } else {
    levels_->start(layer, q);
    steps_.attend(layer, levels_->at_home() ? within_parts_ : visits_[at(Keeps::all)][0], q,
                  steps_.cached(layer), to);
    levels_->finish(layer, q, to);
    steps_.add_sinks(layer, to);
  }
  levels_->weigh(layer, windows_[layer], q, to);
}

}  // namespace pecia::context
