// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/pass_rows.hpp"

#include <algorithm>

#include "lib/ranks/parallel/ring.hpp"

namespace pecia::attention {

using parallel::GlobalRange;
using parallel::PassSequence;
using parallel::SequenceId;
using parallel::SlotRange;
using parallel::StridedRange;
using parallel::TeamPass;

int64_t SequenceRows::count() const {
  int64_t rows = 0;
  for (const GlobalRange& range : ranges) rows += range.size();
  return rows;
}

void SequenceRows::append_to(std::vector<int64_t>& positions) const {
  for (const GlobalRange& range : ranges)
    for (int64_t position = range.begin; position < range.end; ++position)
      positions.push_back(position);
}

std::vector<SequenceId> sequences_seen(const std::vector<PassSequence>& pass,
                                       const parallel::KvMap& map) {
  std::vector<SequenceId> seen;
  for (const PassSequence& sequence : pass)
    for (const SequenceId member : map.lineage(sequence.sequence)) seen.push_back(member);
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  return seen;
}

PassRows::PassRows(KvLedger& ledger, const std::vector<TeamPass>& teams) : ledger_(&ledger) {
  check_teams(teams, ledger.map().instances());
  if (const auto own = team_of(teams, ledger.instance())) {
    own_ = teams[*own];
    plan(ledger);
  }
  for (const TeamPass& each : teams)
    for (const PassSequence& sequence : each.rows)
      ledger.append(sequence, each.team, each.placement(sequence.sequence));
}

/// The map does not have the rows yet.
void PassRows::plan(KvLedger& ledger) {
  index_ = team().index_of(ledger.instance()).value();
  positions_.resize(size());
  for (const PassSequence& sequence : sequences()) {
    state_origins_.push_back(state_origin(ledger.map(), sequence));
    const int64_t before = count();
    for (int rank = 0; rank < size(); ++rank)
      SequenceRows{sequence.sequence, rows_of(sequence, team(), rank)}.append_to(positions_[rank]);
    if (placement(sequence.sequence) != nullptr)
      placed_[sequence.sequence] = ledger.map().travelling(sequence, team());
    else if (before < count())
      take_slots(ledger, sequence, before);
  }
  key_sequences_ = sequences_seen(sequences(), ledger.map());
}

/// The next slots of a sequence for its rows, from `first_row` on.
void PassRows::take_slots(KvLedger& ledger, const PassSequence& of, int64_t first_row) {
  const auto take = [&](Retention retention, const std::vector<SlotRange>& ranges) {
    append_slots(slots_[static_cast<size_t>(retention)], ranges);
  };
  const int64_t rows = count() - first_row;
  if (ledger.map().virtual_ranks() > 1)
    take_virtual_slots(of, first_row);
  else
    take(Retention::all, ledger.next_slots(of.sequence, rows));
  if (ledger.recent() != nullptr)
    take(Retention::recent, ledger.next_recent_slots(of.sequence, rows));
  if (!stored_.empty() && stored_.back().end == first_row)
    stored_.back().end = count();
  else
    stored_.push_back({first_row, count()});
}

/// The next slots of each virtual rank, given to the rows that it owns.
void PassRows::take_virtual_slots(const PassSequence& of, int64_t first_row) {
  const int played = ledger_->map().virtual_ranks();
  const auto first = positions().begin() + first_row, last = positions().end();
  auto& slots = slots_[static_cast<size_t>(Retention::all)];
  slots.resize(positions().size());
  for (int i = 0; i < played; ++i) {
    const SequenceRows own{of.sequence, rows_of(of, size() * played, index_ * played + i)};
    const auto next = ledger_->next_slots(of.sequence, own.count(), i);
    int64_t given = 0;
    for (const GlobalRange& range : own.ranges) {
      // A range's rows lie next to each other, as its positions do.
      auto row = std::lower_bound(first, last, range.begin) - positions().begin();
      for (const SlotRange& part : part_of(next, given, range.size()))
        for (int64_t slot = part.begin; slot < part.end; ++slot) slots[row++] = slot;
      given += range.size();
    }
  }
}

int PassRows::visiting(int step) const {
  return parallel::visiting_rank(size(), index_, step);
}

std::vector<SequenceRows> PassRows::rows_at(int rank) const {
  std::vector<SequenceRows> rows;
  for (const PassSequence& sequence : sequences())
    rows.push_back({sequence.sequence, rows_of(sequence, team(), rank)});
  return rows;
}

size_t PassRows::key_index(SequenceId sequence) const {
  const auto at = std::lower_bound(key_sequences_.begin(), key_sequences_.end(), sequence);
  return static_cast<size_t>(at - key_sequences_.begin());
}

const std::vector<parallel::TravellingTokens>* PassRows::placed(SequenceId sequence) const {
  if (placed_.empty()) return nullptr;
  const auto found = placed_.find(sequence);
  return found == placed_.end() ? nullptr : &found->second;
}

int64_t PassRows::held(SequenceId sequence, int rank) const {
  const auto* travelling = placed(sequence);
  return travelling != nullptr ? travelling->at(rank).count
                               : ledger_->map().held(sequence, team().instances[rank]);
}

const std::vector<StridedRange>& PassRows::ranges(SequenceId sequence, int rank) const {
  const auto* travelling = placed(sequence);
  return travelling != nullptr ? travelling->at(rank).ranges
                               : ledger_->map().ranges(sequence, team().instances[rank]);
}

int64_t PassRows::kept(Retention retention, int rank) const {
  int64_t tokens = 0;
  for (const SequenceId sequence : key_sequences_) tokens += kept(retention, sequence, rank);
  return tokens;
}

int64_t PassRows::kept(Retention retention, SequenceId sequence, int rank) const {
  return held(sequence, rank) - ledger_->evicted(retention, sequence, team().instances[rank]);
}

std::vector<StridedRange> PassRows::kept_ranges(Retention retention, SequenceId sequence,
                                                int rank) const {
  const std::vector<StridedRange>& all = ranges(sequence, rank);
  const int64_t evicted = ledger_->evicted(retention, sequence, team().instances[rank]);
  if (evicted == 0) return all;
  return positions_of({{evicted, kept(retention, sequence, rank)}}, all);
}

}  // namespace pecia::attention
