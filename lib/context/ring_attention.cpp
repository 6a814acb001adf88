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
using parallel::TravellingTokens;

RingAttention::RingAttention(comm::Communicator& ranks, const Compute& compute, KvCache& cache,
                             int64_t num_heads, std::vector<int64_t> windows,
                             const std::optional<parallel::SparseSetting>& sparse,
                             const LevelRanks& level_ranks, std::optional<float> scale)
    : ranks_(ranks),
      compute_(compute),
      cache_(cache),
      steps_(compute, cache, num_heads, windows, kernels::RowInvariant::no, scale),
      windows_(std::move(windows)),
      ledger_(cache, ranks.size(), ranks.rank()),
      query_positions_(ranks.size()),
      travelling_{compute.buffer(), compute.buffer()},
      lse_(compute.buffer()),
      batch_q_(compute.buffer()),
      batch_part_(compute) {
  for (int rank = 0; rank < ranks.size(); ++rank) {
    away_.emplace_back(compute);
    home_.emplace_back(compute);
  }
  if (!sparse) return;
  const comm::Communicator& cut_by = level_ranks.heads != nullptr ? *level_ranks.heads : ranks;
  levels_.emplace(compute, cache, steps_, level_ranks, cut_by.rank(), *sparse);
}

int RingAttention::visiting(int step) const {
  return parallel::visiting_rank(size(), index_, step);
}

void RingAttention::begin_pass(const std::vector<TeamPass>& teams, int64_t number) {
  check_teams(teams, ranks_.size());
  for (auto& positions : query_positions_) positions.clear();
  for (auto& slots : slots_) slots.clear();
  stored_rows_.clear();
  for (auto& visits : visits_) visits.clear();
  placed_.clear();
  halos_.clear();
  visitors_.clear();
  const std::optional<size_t> own = team_of(teams, ledger_.instance());
  if (own) join(teams[*own].team, number), plan_rows(teams[*own]), plan_placements(teams[*own]);
  const bool by_levels = own && team_.ring == parallel::Ring::levels;
  const bool at_home = levels_ && levels_->at_home();
  std::vector<LevelAttention::Sequence> sequences;
  if (by_levels && !at_home) sequences = level_sequences(teams[*own].rows);
  for (const TeamPass& each : teams)
    for (const PassSequence& sequence : each.rows)
      ledger_.append(sequence, each.team, each.placement(sequence.sequence));
  if (!own) return;
  const Pass& pass = teams[*own].rows;
  key_sequences_ = sequences_seen(pass, ledger_.map());
  if (team_.ring == parallel::Ring::broadcast_q) {
    whole_ring_bytes_ = whole_ring_bytes(pass);
    return plan_visitors(pass);
  }
  if (by_levels) {
    if (at_home) sequences = home_sequences(pass);
    add_level_runs(pass, sequences);
    levels_->begin_pass(*ring_, std::move(sequences));
  }
  if (team_.ring == parallel::Ring::pass_q) {
    whole_ring_bytes_ = whole_ring_bytes(pass);
    if (size() > 1) plan_visitors(pass);
    const bool go_round =
        std::ranges::any_of(windows_, [&](int64_t window) { return !visitors_.contains(window); });
    if (!go_round) return;
    for_each_keeps([&](Keeps keeps) {
      const SequenceRuns cached = runs_in_cache(keeps);
      for (int step = 0; step < size(); ++step)
        visits_[at(keeps)].push_back(call(pass, visiting(step), cached));
    });
    return;
  }
  if (size() > 1 || !placed_.empty()) plan_messages(teams[*own]);
  whole_ring_bytes_ = whole_ring_bytes(pass);
  plan_halos(teams[*own]);
  for_each_keeps([&](Keeps keeps) {
    const bool keys_go_round = std::ranges::any_of(windows_, [&](int64_t window) {
      return keeps_of(window) == keeps && (window > 0 || !by_levels) && !halos_.contains(window);
    });
    for (int step = 0; step < (keys_go_round ? size() : 1); ++step) {
      const bool in_cache = step == 0 && (keeps == Keeps::recent || !steps_.own_keys_in_message());
      visits_[at(keeps)].push_back(call(
          pass, index_, in_cache ? runs_in_cache(keeps) : runs_in_message(keeps, visiting(step))));
    }
  });
}

const std::vector<TravellingTokens>* RingAttention::placed(SequenceId sequence) const {
  if (placed_.empty()) return nullptr;
  const auto found = placed_.find(sequence);
  return found == placed_.end() ? nullptr : &found->second;
}

int64_t RingAttention::held(SequenceId sequence, int rank) const {
  const auto* travelling = placed(sequence);
  return travelling != nullptr ? travelling->at(rank).count
                               : ledger_.map().held(sequence, team_.instances[rank]);
}

const std::vector<parallel::StridedRange>& RingAttention::ranges(SequenceId sequence,
                                                                 int rank) const {
  const auto* travelling = placed(sequence);
  return travelling != nullptr ? travelling->at(rank).ranges
                               : ledger_.map().ranges(sequence, team_.instances[rank]);
}

int64_t RingAttention::kept(Keeps keeps, SequenceId sequence, int rank) const {
  return held(sequence, rank) - ledger_.gone(keeps, sequence, team_.instances[rank]);
}

std::vector<parallel::StridedRange> RingAttention::kept_ranges(Keeps keeps, SequenceId sequence,
                                                               int rank) const {
  const std::vector<parallel::StridedRange>& all = ranges(sequence, rank);
  const int64_t gone = ledger_.gone(keeps, sequence, team_.instances[rank]);
  if (gone == 0) return all;
  return positions_of({{gone, kept(keeps, sequence, rank)}}, all);
}

/// The team's ring: all ranks where it is all instances in their order, else a group of its own,
/// which costs no message.
void RingAttention::join(const parallel::Team& team, int64_t number) {
  team_ = team;
  index_ = team.index_of(ledger_.instance()).value();
  if (team.instances == parallel::team_of_all(ranks_.size()).instances) {
    if (group_) ranks_.enter_team(0, 0);
    group_.reset();
    ring_ = &ranks_;
  } else {
    group_ = comm::make_team(ranks_, {team.instances.begin(), team.instances.end()}, number);
    ring_ = group_.get();
  }
  steps_.begin_pass(*ring_);
}

/// Positions of every rank's rows, and the cache slots of this rank's: the next ones of each
/// sequence that is not placed.
void RingAttention::plan_rows(const TeamPass& own) {
  for (const PassSequence& sequence : own.rows) {
    const auto before = static_cast<int64_t>(positions().size());
    for (int rank = 0; rank < size(); ++rank)
      for (const GlobalRange& range : rows_of(sequence, team_, rank))
        for (int64_t position = range.begin; position < range.end; ++position)
          query_positions_[rank].push_back(position);
    const auto end = static_cast<int64_t>(positions().size());
    if (before == end || own.placement(sequence.sequence) != nullptr) continue;
    for_each_keeps([&](Keeps keeps) {
      for (const SlotRange& range : keeps == Keeps::recent
                                        ? ledger_.next_recent_slots(sequence.sequence, end - before)
                                        : ledger_.next_slots(sequence.sequence, end - before))
        for (int64_t slot = range.begin; slot < range.end; ++slot)
          slots_[at(keeps)].push_back(slot);
    });
    if (!stored_rows_.empty() && stored_rows_.back().end == before)
      stored_rows_.back().end = end;
    else
      stored_rows_.push_back({before, end});
  }
}

/// What travels of the sequences that the pass places. Call it before the map has their rows.
void RingAttention::plan_placements(const TeamPass& own) {
  for (const PassSequence& sequence : own.rows)
    if (own.placement(sequence.sequence) != nullptr)
      placed_[sequence.sequence] = ledger_.map().travelling(sequence, team_);
}

void RingAttention::plan_messages(const TeamPass& own) {
  std::vector<MessageBlock> blocks;
  for (const SequenceId sequence : key_sequences_) {
    const auto* travelling = placed(sequence);
    const int64_t tokens = held(sequence, index_);
    const int64_t cached = travelling != nullptr ? travelling->at(index_).cached : tokens;
    blocks.push_back({part_of(ledger_.slots(sequence), 0, cached), tokens});
  }
  int64_t row = 0;
  for (const PassSequence& sequence : own.rows) {
    const int64_t rows = parallel::num_rows({sequence}, team_, index_);
    if (placed(sequence.sequence) != nullptr) {
      const auto at =
          std::lower_bound(key_sequences_.begin(), key_sequences_.end(), sequence.sequence);
      MessageBlock& block = blocks[static_cast<size_t>(at - key_sequences_.begin())];
      block.first_row = row, block.rows = rows;
    }
    row += rows;
  }
  std::vector<int64_t> tokens(size());
  std::vector<std::vector<KeptTokens>> kept;
  for (int step = 0; step < size(); ++step) {
    for (const SequenceId sequence : key_sequences_) tokens[step] += held(sequence, visiting(step));
    if (!placed_.empty()) kept.push_back(kept_of(own, visiting(step)));
  }
  steps_.plan_messages(Keeps::all, std::move(blocks), std::move(tokens), std::move(kept));
  if (cache_.recent().any()) plan_recent_messages();
}

/// Keys of layers with a window that go round the ring: those that are kept.
void RingAttention::plan_recent_messages() {
  std::vector<MessageBlock> blocks;
  std::vector<int64_t> tokens(size());
  for (const SequenceId sequence : key_sequences_) {
    const int64_t own = kept(Keeps::recent, sequence, index_);
    blocks.push_back({part_of(ledger_.kept_slots(Keeps::recent, sequence), 0, own), own});
    for (int step = 0; step < size(); ++step)
      tokens[step] += kept(Keeps::recent, sequence, visiting(step));
  }
  steps_.plan_messages(Keeps::recent, std::move(blocks), std::move(tokens));
}

/// What this rank keeps of the message of `source`. The map has the pass's tokens already: what is
/// kept of a sequence is the end of what this instance holds.
std::vector<KeptTokens> RingAttention::kept_of(const TeamPass& own, int source) const {
  std::vector<KeptTokens> kept;
  int64_t block_begin = 0;
  for (const SequenceId sequence : key_sequences_) {
    const int64_t block_tokens = held(sequence, source);
    if (const auto* travelling = placed(sequence)) {
      const auto runs = kept_runs(*own.placement(sequence), team_, *travelling, ledger_.instance());
      int64_t next = travelling->at(index_).cached;  // slots used so far
      for (const parallel::KeptRun& run : runs) {
        if (run.source == source)
          kept.push_back({block_begin, block_tokens, run.run.begin,
                          part_of(ledger_.slots(sequence), next, run.run.count)});
        next += run.run.count;
      }
    }
    block_begin += block_tokens;
  }
  return kept;
}

/// This rank's own keys, where they are cached.
RingAttention::SequenceRuns RingAttention::runs_in_cache(Keeps keeps) const {
  const int64_t head_stride = cache_.capacity(keeps) * steps_.head_dim();
  SequenceRuns all;
  for (const SequenceId sequence : key_sequences_) {
    steps_.add_runs(all.runs, kept_ranges(keeps, sequence, index_),
                    ledger_.kept_slots(keeps, sequence), 0, head_stride);
    all.ends.push_back(all.runs.size());
  }
  return all;
}

/// The keys of `rank` in its travelling message.
RingAttention::SequenceRuns RingAttention::runs_in_message(Keeps keeps, int rank) const {
  const int64_t head_dim = steps_.head_dim();
  SequenceRuns all;
  int64_t offset = 0;  // among the tokens of the message
  for (const SequenceId sequence : key_sequences_) {
    const int64_t tokens = kept(keeps, sequence, rank);
    steps_.add_runs(all.runs, kept_ranges(keeps, sequence, rank), {{0, tokens}},
                    offset * cache_.shape().num_kv_heads * head_dim, tokens * head_dim);
    all.ends.push_back(all.runs.size());
    offset += tokens;
  }
  return all;
}

std::span<const kernels::KeyRun> RingAttention::of_sequence(SequenceId sequence,
                                                            const SequenceRuns& runs) const {
  const auto needed = std::lower_bound(key_sequences_.begin(), key_sequences_.end(), sequence);
  const auto index = static_cast<size_t>(needed - key_sequences_.begin());
  const size_t begin = index == 0 ? 0 : runs.ends[index - 1];
  return std::span(runs.runs).subspan(begin, runs.ends[index] - begin);
}

std::vector<RingAttention::Rows> RingAttention::rows_at(const Pass& pass, int rank) const {
  std::vector<Rows> rows;
  for (const PassSequence& sequence : pass)
    rows.push_back({sequence.sequence, rows_of(sequence, team_, rank)});
  return rows;
}

AttentionCall RingAttention::call(const Pass& pass, int query_rank,
                                  const SequenceRuns& runs) const {
  AttentionCall call;
  add_items(call, rows_at(pass, query_rank), runs);
  return call;
}

/// The rows, after those that the call has, against these runs of keys.
void RingAttention::add_items(AttentionCall& call, const std::vector<Rows>& rows,
                              const SequenceRuns& runs) const {
  for (const auto& [sequence, positions] : rows) {
    const auto first_row = static_cast<int64_t>(call.positions.size());
    for (const GlobalRange& range : positions)
      for (int64_t position = range.begin; position < range.end; ++position)
        call.positions.push_back(position);
    kernels::AttentionItem item{first_row, std::ssize(call.positions) - first_row,
                                static_cast<int64_t>(call.runs.size()), 0};
    std::vector<parallel::StridedRange> seen;
    for (const SequenceId member : ledger_.map().lineage(sequence))
      for (const kernels::KeyRun& run : of_sequence(member, runs)) {
        call.runs.push_back(run);
        seen.push_back({run.position, run.num_keys, run.stride});
      }
    steps_.count_flops(call, positions, seen);
    item.num_runs = static_cast<int64_t>(call.runs.size()) - item.first_run;
    call.items.push_back(item);
  }
}

void RingAttention::plan_parts(const Pass& pass, const std::vector<RowRange>& rows) {
  PECIA_CHECK(size() == 1, "parts of the rows of one of {} ranks", size());
  std::array<SequenceRuns, 2> own;
  for_each_keeps([&](Keeps keeps) { own[at(keeps)] = runs_in_cache(keeps); });
  part_rows_ = rows;
  for (auto& parts : parts_) parts.clear();
  for (const RowRange& part : rows) {
    std::vector<Rows> sequences;  // on one rank a sequence's rows are all its new tokens
    int64_t row = 0;
    for (const PassSequence& sequence : pass) {
      const int64_t begin = std::max(row, part.begin);
      const int64_t end = std::min(row + sequence.count, part.end), first = sequence.first - row;
      if (begin < end) sequences.push_back({sequence.sequence, {{first + begin, first + end}}});
      row += sequence.count;
    }
    for_each_keeps([&](Keeps keeps) {
      add_items(parts_[at(keeps)].emplace_back(), sequences, own[at(keeps)]);
    });
  }
}

void RingAttention::store(int64_t layer, const TensorView& k, const TensorView& v) {
  int64_t slot = 0;
  for (const RowRange& rows : stored_rows_) {
    steps_.store(layer, k.slice_rows(rows.begin, rows.size()),
                 v.slice_rows(rows.begin, rows.size()),
                 std::span(slots(cache_.keeps(layer))).subspan(slot, rows.size()));
    slot += rows.size();
  }
}

void RingAttention::attend_part(int64_t layer, size_t part, const TensorView& q,
                                const TensorView& out) {
  const RowRange& rows = part_rows_[part];
  const auto of = [&](const TensorView& all) { return all.slice_rows(rows.begin, rows.size()); };
  steps_.attend(layer, parts_[at(cache_.keeps(layer))][part], of(q), steps_.cached(layer),
                {of(out), steps_.lse(lse_, rows.size())});
  steps_.add_sinks(layer, {of(out), steps_.lse(lse_, rows.size())});
}

void RingAttention::run(int64_t layer, const TensorView& q, const TensorView& k,
                        const TensorView& v, const TensorView& out) {
  store(layer, k, v);
  attend(layer, q, k, v, out);
}

bool RingAttention::stores_all_rows() const {
  const auto rows = static_cast<int64_t>(positions().size());
  return team_.ring != parallel::Ring::levels && stored_rows_.size() == 1 &&
         stored_rows_.front() == RowRange{0, rows};
}

bool RingAttention::attends_once() const {
  return size() == 1 && team_.ring == parallel::Ring::pass_kv && !steps_.has_sinks();
}

void RingAttention::run_fresh(int64_t layer, const kernels::RotateAndStoreArgs& heads,
                              const TensorView& out) {
  PECIA_CHECK(stores_all_rows(), "heads of rows that are not all stored here");
  steps_.rotate_and_store(layer, heads, slots(cache_.keeps(layer)));
  attend(layer, heads.q_out, heads.k, heads.v, out);  // keys travel from the cache
}

void RingAttention::attend(int64_t layer, const TensorView& q, const TensorView& k,
                           const TensorView& v, const TensorView& out) {
  const int64_t sent_before = ring_->traffic().bytes;
  switch (team_.ring) {
    case parallel::Ring::pass_kv:
      run_pass_kv(layer, q, k, v, out);
      break;
    case parallel::Ring::pass_q:
      run_pass_q(layer, q, out);
      break;
    case parallel::Ring::broadcast_q:
      run_broadcast_q(layer, visitors_.at(windows_[layer]), q, out);
      break;
    case parallel::Ring::levels:
      return run_levels(layer, q, k, v, out);
  }
  count_window(layer, sent_before);
}

/// What this rank sends in a layer without a window, where other layers have one: keys that go
/// round, or queries and the results that go home. Levels send keys round in layers with a window
/// alone.
int64_t RingAttention::whole_ring_bytes(const Pass& pass) const {
  const auto has_window = [](int64_t window) { return window > 0; };
  if (size() == 1 || std::ranges::none_of(windows_, has_window)) return 0;
  int64_t bytes = 0;
  const int64_t query = steps_.num_heads() * steps_.head_dim() * size_of(DType::fp32);
  const int64_t result = query + steps_.num_heads() * size_of(DType::fp32);  // with log-sums
  switch (team_.ring) {
    case parallel::Ring::pass_kv:
    case parallel::Ring::levels:
      for (int step = 0; step + 1 < size(); ++step) bytes += steps_.message_bytes(step);
      return bytes;
    case parallel::Ring::pass_q:
      for (int step = 0; step < size(); ++step) {
        const auto rows = static_cast<int64_t>(query_positions_[visiting(step)].size());
        if (step + 1 < size()) bytes += rows * query;
        if (step > 0) bytes += rows * result;
      }
      return bytes;
    case parallel::Ring::broadcast_q:
      for (int other = 0; other < size(); ++other) {
        if (other == index_) continue;
        for (const Rows& rows : rows_at(pass, index_))
          bytes += count_tokens(rows_that_see(0, rows, other)) * query;
        for (const Rows& rows : rows_at(pass, other))
          bytes += count_tokens(rows_that_see(0, rows, index_)) * result;
      }
      return bytes;
  }
  return bytes;
}

/// Counts the layer, if it has a window, in whose attention all bytes after `sent_before` were sent.
void RingAttention::count_window(int64_t layer, int64_t sent_before) {
  if (windows_[layer] == 0 || size() == 1) return;
  window_totals_ += {ring_->traffic().bytes - sent_before, whole_ring_bytes_};
}

void RingAttention::run_pass_kv(int64_t layer, const TensorView& q, const TensorView& k,
                                const TensorView& v, const TensorView& out) {
  const auto halo = halos_.find(windows_[layer]);
  if (halo != halos_.end()) return run_halo(layer, halo->second, q, out);
  const Partial to{out, steps_.lse(lse_, q.rows())};
  const TensorView queries = size() > 1 ? steps_.queries_of_calls(q) : q;
  const std::vector<AttentionCall>& visits = visits_[at(cache_.keeps(layer))];
  steps_.pass_keys(layer, k, v, [&](int step, const kernels::StoredKeys& keys) {
    if (step == 0)
      steps_.attend(layer, visits[0], queries, keys, to);
    else
      steps_.attend_more(layer, visits[step], queries, keys, to);
  });
  steps_.add_sinks(layer, to);
}

void RingAttention::run_pass_q(int64_t layer, const TensorView& q, const TensorView& out) {
  const auto straight = visitors_.find(windows_[layer]);
  if (straight != visitors_.end()) return run_broadcast_q(layer, straight->second, q, out);
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
    steps_.attend(layer, visits_[at(cache_.keeps(layer))][step], visiting_q, steps_.cached(layer),
                  step == 0 ? to : steps_.partial(away_[owner], rows(owner)));
    if (!transfer) break;
    steps_.wait(*transfer, "ring_pass_q", static_cast<int64_t>(bytes_of(visiting_q).size()));
    visiting_q = coming;
  }
  if (size() == 1) return steps_.add_sinks(layer, to);

  std::vector<Partial> away, home;
  for (int other = 0; other < size(); ++other) {
    away.push_back(steps_.partial(away_[other], other == rank ? 0 : rows(other)));
    home.push_back(steps_.partial(home_[other], other == rank ? 0 : q.rows()));
  }
  steps_.send_home(away, home);
  for (int other = 0; other < size(); ++other)
    if (other != rank) steps_.merge(home[other], to);
  steps_.add_sinks(layer, to);
}

}  // namespace pecia::context
