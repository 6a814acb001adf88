// SPDX-License-Identifier: Apache-2.0
#include "lib/context/ring_attention.hpp"

#include <algorithm>

#include "lib/comm/team.hpp"
#include "lib/parallel/ring.hpp"

namespace pecia::context {

using parallel::GlobalRange;
using parallel::PassSequence;
using parallel::RowRange;
using parallel::SequenceId;
using parallel::SlotRange;
using parallel::TeamPass;

RingAttention::RingAttention(comm::Communicator& ranks, const Compute& compute, KvCache& cache,
                             int64_t num_heads, std::vector<int64_t> windows)
    : ranks_(ranks),
      compute_(compute),
      cache_(cache),
      steps_(compute, cache, num_heads, std::move(windows), kernels::RowInvariant::no),
      ledger_(cache, ranks.size(), ranks.rank()),
      query_positions_(ranks.size()),
      travelling_{compute.buffer(), compute.buffer()},
      lse_(compute.buffer()),
      batch_q_(compute.buffer()),
      part_(compute) {
  for (int rank = 0; rank < ranks.size(); ++rank) {
    away_.emplace_back(compute);
    home_.emplace_back(compute);
  }
}

int RingAttention::visiting(int step) const {
  return parallel::visiting_rank(size(), index_, step);
}

void RingAttention::begin_pass(const std::vector<TeamPass>& teams) {
  check_teams(teams, ranks_.size());
  for (auto& positions : query_positions_) positions.clear();
  slots_.clear();
  visits_.clear();
  ++passes_;
  const std::optional<size_t> own = team_of(teams, ledger_.instance());
  if (own) join(teams[*own].team), plan_rows(teams[*own].rows);
  for (const TeamPass& each : teams)
    for (const PassSequence& sequence : each.rows) ledger_.append(sequence, each.team);
  if (!own) return;
  const Pass& pass = teams[*own].rows;
  plan_key_sequences(pass);
  if (team_.ring == parallel::Ring::broadcast_q) return plan_visitors(pass);
  const SequenceRuns cached = runs_in_cache();
  for (int step = 0; step < size(); ++step) {
    if (team_.ring == parallel::Ring::pass_q)
      visits_.push_back(call(pass, visiting(step), index_, cached));
    else if (step == 0)
      visits_.push_back(call(pass, index_, index_, cached));
    else
      visits_.push_back(call(pass, index_, visiting(step), runs_in_message(visiting(step))));
  }
}

/// The team's ring: all ranks where it is all instances in their order, else a group of its own,
/// which costs no message.
void RingAttention::join(const parallel::Team& team) {
  team_ = team;
  index_ = team.index_of(ledger_.instance()).value();
  if (team.instances == parallel::team_of_all(ranks_.size()).instances) {
    if (group_) ranks_.enter_team(0, 0);
    group_.reset();
    ring_ = &ranks_;
  } else {
    group_ = comm::make_team(ranks_, {team.instances.begin(), team.instances.end()}, passes_);
    ring_ = group_.get();
  }
  steps_.begin_pass(*ring_);
}

/// Positions of every rank's rows, and the cache slots of this rank's: the next ones of each
/// sequence.
void RingAttention::plan_rows(const Pass& pass) {
  for (const PassSequence& sequence : pass) {
    const auto before = static_cast<int64_t>(positions().size());
    for (int rank = 0; rank < size(); ++rank)
      for (const GlobalRange& range : rows_of(sequence, team_, rank))
        for (int64_t position = range.begin; position < range.end; ++position)
          query_positions_[rank].push_back(position);
    const int64_t rows = static_cast<int64_t>(positions().size()) - before;
    for (const SlotRange& range : ledger_.next_slots(sequence.sequence, rows))
      for (int64_t slot = range.begin; slot < range.end; ++slot) slots_.push_back(slot);
  }
}

void RingAttention::plan_key_sequences(const Pass& pass) {
  key_sequences_.clear();
  std::vector<MessageBlock> blocks;
  int64_t tokens = 0;
  for (const SequenceId sequence : sequences_seen(pass, ledger_.map())) {
    int64_t most = 0;
    for (int rank = 0; rank < size(); ++rank) most = std::max(most, held(sequence, rank));
    key_sequences_.push_back({sequence, most, tokens});
    blocks.push_back({sequence, 0, held(sequence, index_), most});
    tokens += most;
  }
  steps_.plan_message(std::move(blocks));
}

/// This rank's own keys, where they are cached.
RingAttention::SequenceRuns RingAttention::runs_in_cache() const {
  const int64_t head_stride = cache_.capacity() * steps_.head_dim();
  SequenceRuns all;
  for (const KeySequence& needed : key_sequences_) {
    steps_.add_runs(all.runs, ranges(needed.sequence, index_), ledger_.slots(needed.sequence), 0,
                    head_stride);
    all.ends.push_back(all.runs.size());
  }
  return all;
}

/// The keys of `rank` in its travelling message.
RingAttention::SequenceRuns RingAttention::runs_in_message(int rank) const {
  const int64_t head_dim = steps_.head_dim();
  SequenceRuns all;
  for (const KeySequence& needed : key_sequences_) {
    steps_.add_runs(all.runs, ranges(needed.sequence, rank), {{0, needed.padded_tokens}},
                    needed.offset * cache_.shape().num_kv_heads * head_dim,
                    needed.padded_tokens * head_dim);
    all.ends.push_back(all.runs.size());
  }
  return all;
}

std::span<const kernels::KeyRun> RingAttention::of_sequence(SequenceId sequence,
                                                            const SequenceRuns& runs) const {
  const auto needed = std::lower_bound(
      key_sequences_.begin(), key_sequences_.end(), sequence,
      [](const KeySequence& candidate, SequenceId wanted) { return candidate.sequence < wanted; });
  const auto index = static_cast<size_t>(needed - key_sequences_.begin());
  const size_t begin = index == 0 ? 0 : runs.ends[index - 1];
  return std::span(runs.runs).subspan(begin, runs.ends[index] - begin);
}

AttentionCall RingAttention::call(const Pass& pass, int query_rank, int key_rank,
                                  const SequenceRuns& runs) const {
  AttentionCall call;
  add_items(call, pass, query_rank, key_rank, query_positions_[query_rank], runs);
  return call;
}

/// Rows of `query_rank` in the pass, at `positions`, against the runs of keys of `key_rank`.
void RingAttention::add_items(AttentionCall& call, const Pass& pass, int query_rank, int key_rank,
                              std::span<const int64_t> positions, const SequenceRuns& runs) const {
  auto row = static_cast<int64_t>(call.positions.size());
  call.positions.insert(call.positions.end(), positions.begin(), positions.end());
  for (const PassSequence& sequence : pass) {
    const std::vector<GlobalRange> new_rows = rows_of(sequence, team_, query_rank);
    int64_t rows = 0;
    for (const GlobalRange& range : new_rows) rows += range.size();
    kernels::AttentionItem item{row, rows, static_cast<int64_t>(call.runs.size()), 0};
    for (const SequenceId member : ledger_.map().lineage(sequence.sequence)) {
      const std::span<const kernels::KeyRun> keys = of_sequence(member, runs);
      call.runs.insert(call.runs.end(), keys.begin(), keys.end());
      steps_.count_flops(call, new_rows, ranges(member, key_rank));
    }
    item.num_runs = static_cast<int64_t>(call.runs.size()) - item.first_run;
    call.items.push_back(item);
    row += rows;
  }
}

void RingAttention::plan_parts(const Pass& pass, const std::vector<RowRange>& rows) {
  PECIA_CHECK(size() == 1, "parts of the rows of one of {} ranks", size());
  const SequenceRuns own = runs_in_cache();
  part_rows_ = rows;
  parts_.clear();
  for (const RowRange& part : rows) {
    // On one rank a sequence's rows are all its new tokens, so that some of them are a pass too.
    Pass sequences;
    int64_t row = 0;
    for (PassSequence sequence : pass) {
      const int64_t first_row = row;
      row += sequence.count;
      const int64_t begin = std::max(first_row, part.begin), end = std::min(row, part.end);
      if (begin >= end) continue;
      sequence.first += begin - first_row;
      sequence.count = end - begin;
      sequences.push_back(sequence);
    }
    add_items(parts_.emplace_back(), sequences, 0, 0,
              std::span(query_positions_[0]).subspan(part.begin, part.size()), own);
  }
}

void RingAttention::store(int64_t layer, const TensorView& k, const TensorView& v) {
  steps_.store(layer, k, v, slots_);
}

void RingAttention::attend_part(int64_t layer, size_t part, const TensorView& q,
                                const TensorView& out) {
  const RowRange& rows = part_rows_[part];
  const auto of = [&](const TensorView& all) { return all.slice_rows(rows.begin, rows.size()); };
  steps_.attend(layer, parts_[part], of(q), steps_.cached(layer),
                {of(out), steps_.lse(lse_, rows.size())});
}

void RingAttention::run(int64_t layer, const TensorView& q, const TensorView& k,
                        const TensorView& v, const TensorView& out) {
  store(layer, k, v);
  switch (team_.ring) {
    case parallel::Ring::pass_kv:
      return run_pass_kv(layer, q, out);
    case parallel::Ring::pass_q:
      return run_pass_q(layer, q, out);
    case parallel::Ring::broadcast_q:
      return run_broadcast_q(layer, q, out);
  }
}

void RingAttention::run_pass_kv(int64_t layer, const TensorView& q, const TensorView& out) {
  const Partial to{out, steps_.lse(lse_, q.rows())};
  steps_.pass_keys(layer, [&](int step, const kernels::StoredKeys& keys) {
    if (step == 0) return steps_.attend(layer, visits_[0], q, keys, to);
    const Partial part = steps_.partial(part_, q.rows());
    steps_.attend(layer, visits_[step], q, keys, part);
    steps_.merge(part, to);
  });
}

void RingAttention::run_pass_q(int64_t layer, const TensorView& q, const TensorView& out) {
  const int rank = index_, right = (rank + 1) % size(), left = (rank + size() - 1) % size();
  const auto rows = [&](int of) { return static_cast<int64_t>(query_positions_[of].size()); };
  const Partial to{out, steps_.lse(lse_, q.rows())};
  TensorView visiting_q = q;
  for (int step = 0; step < size(); ++step) {
    const int owner = visiting(step);
    std::unique_ptr<comm::Transfer> transfer;
    TensorView coming;
    if (step + 1 < size()) {
      coming = steps_.queries(travelling_[step % 2], rows(visiting(step + 1)));
      transfer = ring_->start_send_receive(bytes_of(visiting_q), right, bytes_of(coming), left);
    }
    steps_.attend(layer, visits_[step], visiting_q, steps_.cached(layer),
                  step == 0 ? to : steps_.partial(away_[owner], rows(owner)));
    if (!transfer) break;
    steps_.wait(*transfer, "ring_pass_q", static_cast<int64_t>(bytes_of(visiting_q).size()));
    visiting_q = coming;
  }
  if (size() == 1) return;

  std::vector<Partial> away, home;
  for (int other = 0; other < size(); ++other) {
    away.push_back(steps_.partial(away_[other], other == rank ? 0 : rows(other)));
    home.push_back(steps_.partial(home_[other], other == rank ? 0 : q.rows()));
  }
  steps_.send_home(away, home);
  for (int other = 0; other < size(); ++other)
    if (other != rank) steps_.merge(home[other], to);
}

}  // namespace pecia::context
