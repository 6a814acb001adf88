// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/invariant.hpp"

#include <algorithm>

#include "lib/ranks/parallel/merge_tree.hpp"
#include "lib/ranks/parallel/virtual_ranks.hpp"

namespace pecia::attention {

using parallel::layout_ranks;
using parallel::MergeTree;
using parallel::SequenceId;

namespace {

// Up to this number of rows, one call for all virtual ranks of a visit keeps more threads busy and
// costs little memory; which is chosen changes no bit.
constexpr int64_t most_stacked_rows = 64;

}  // namespace

Invariant::Invariant(const Compute& compute, AttentionSteps& steps, int ranks)
    : compute_(compute),
      steps_(steps),
      stacked_q_(compute.buffer()),
      all_q_(compute.buffer()),
      stacked_(compute),
      all_partial_(compute) {
  for (int depth = 0; depth < layout_ranks; ++depth) subtrees_.emplace_back(compute);
  for (int rank = 0; rank < ranks; ++rank) waiting_.emplace_back(compute);
  PECIA_CHECK(parallel::can_play_layout(ranks), "{} ranks cannot play {}", ranks, layout_ranks);
}

void Invariant::check(const std::vector<parallel::TeamPass>& teams, int ranks) {
  if (teams.size() != 1 || teams[0].team.holders != 0 ||
      teams[0].team.instances != parallel::team_of_all(ranks).instances)
    fail<Unsupported>("reproducible: layout needs every pass to be of one team of all instances");
  PECIA_CHECK(teams[0].placements.empty(), "virtual ranks keep what they compute");
  for (const parallel::PassSequence& sequence : teams[0].rows)
    PECIA_CHECK(sequence.virtual_ranks == layout_ranks, "sequence {} is cut for {} ranks, not {}",
                sequence.sequence, sequence.virtual_ranks, layout_ranks);
}

void Invariant::begin_pass(const PassRows& rows, std::span<const kernels::Window>) {
  rows_ = &rows;
  keys_travel_ = size() > 1 && rows.team().ring == parallel::AttentionExchange::pass_kv;
  plan_messages();
  const int rank = rows.index();
  const auto asking = keys_travel_ ? rows_of_ranks(rank, rank + 1) : rows_of_ranks(0, size());
  all_rows_ = 0;
  for (int other = 0; other < size(); ++other) all_rows_ += rows.count(other);
  visits_.clear();
  for (const LayerKind& kind : steps_.cache().kinds()) {
    std::vector<Visit>& visits = visits_.emplace_back();
    for (int step = 0; step < (keys_travel_ ? size() : 1); ++step)
      visits.push_back(visit(kind.shape, asking, rows.visiting(step), step > 0));
  }
}

/// One rank after the other, without sequences that have no rows there.
std::vector<SequenceRows> Invariant::rows_of_ranks(int first, int end) const {
  std::vector<SequenceRows> rows;
  for (int rank = first; rank < end; ++rank)
    for (SequenceRows& of : rows_->rows_at(rank))
      if (!of.ranges.empty()) rows.push_back(std::move(of));
  return rows;
}

void Invariant::plan_messages() {
  key_sequences_.clear();
  std::vector<MessageBlock> blocks;
  int64_t tokens = 0;
  const parallel::KvMap& map = rows_->ledger().map();
  for (const SequenceId sequence : rows_->key_sequences()) {
    KeySequence needed{0, tokens};
    for (int rank = 0; rank < size(); ++rank)
      for (int i = 0; i < played(); ++i)
        needed.padded_tokens = std::max(needed.padded_tokens, map.held(sequence, rank, i));
    for (int i = 0; i < played(); ++i)
      blocks.push_back(
          {part_of(rows_->ledger().slots(sequence, i), 0, map.held(sequence, rows_->index(), i)),
           needed.padded_tokens});
    tokens += played() * needed.padded_tokens;
    key_sequences_.push_back(needed);
  }
  for (const int kind : steps_.kinds())
    steps_.messages().plan(kind, blocks, std::vector<int64_t>(size(), tokens));
}

/// The keys of a sequence that one of a rank's virtual ranks holds, in the order they were cached:
/// in the cache of this rank, or in the rank's message.
void Invariant::add_runs(const KvShape& shape, std::vector<kernels::KeyRun>& runs,
                         SequenceId sequence, int rank, int virtual_rank, bool in_message) const {
  const int64_t head_dim = shape.head_dim;
  const KvLedger& ledger = rows_->ledger();
  const KvCache& cache = steps_.cache();
  const auto& positions = ledger.map().ranges(sequence, rank, virtual_rank);
  if (!in_message)
    return steps_.add_runs(runs, positions, ledger.slots(sequence, virtual_rank), shape, 0,
                           cache.capacity() * head_dim);
  const auto& [padded_tokens, offset] = key_sequences_[rows_->key_index(sequence)];
  const int64_t block = offset + virtual_rank * padded_tokens;
  steps_.add_runs(runs, positions, {{0, padded_tokens}}, shape,
                  block * shape.num_kv_heads * head_dim, padded_tokens * head_dim);
}

/// The rows of a sequence, from `first_row` of the call on, against the keys of one of a rank's
/// virtual ranks.
void Invariant::add_item(const KvShape& shape, AttentionCall& call, const SequenceRows& rows,
                         int64_t first_row, int rank, int virtual_rank, bool in_message) const {
  kernels::AttentionItem item{first_row, std::ssize(call.positions) - first_row,
                              std::ssize(call.runs), 0};
  for (const SequenceId member : rows_->lineage(rows.sequence)) {
    add_runs(shape, call.runs, member, rank, virtual_rank, in_message);
    steps_.count_flops(call, rows.ranges, rows_->ledger().map().ranges(member, rank, virtual_rank));
  }
  item.num_runs = std::ssize(call.runs) - item.first_run;
  call.items.push_back(item);
}

Invariant::Visit Invariant::visit(const KvShape& shape, const std::vector<SequenceRows>& rows,
                                  int key_rank, bool in_message) const {
  using Calls = Visit::Calls;
  int64_t count = 0;
  for (const SequenceRows& of : rows) count += of.count();
  Visit visit{compute_.backend.merges_attention() ? Calls::merged
              : count <= most_stacked_rows        ? Calls::stacked
                                                  : Calls::leaves,
              {}};
  const bool merged = visit.kind == Calls::merged;
  for (int i = 0; i < (merged ? 1 : played()); ++i) {
    if (i == 0 || visit.kind == Calls::leaves) visit.calls.emplace_back();
    AttentionCall& call = visit.calls.back();
    if (merged) call.merged = played();
    for (const SequenceRows& of : rows) {
      const auto first_row = std::ssize(call.positions);
      of.append_to(call.positions);
      for (int leaf = merged ? 0 : i; leaf < (merged ? played() : i + 1); ++leaf)
        add_item(shape, call, of, first_row, key_rank, leaf, in_message);
    }
  }
  return visit;
}

void Invariant::run(int64_t layer, const LayerRows& x, const Partial& to) {
  if (size() == 1) return attend_rank(layer, visit_of(layer, 0), x.q, steps_.cached(layer), to);
  if (keys_travel_) return pass_keys(layer, x.q, to);
  pass_queries(layer, x.q, to);
}

/// The keys of one rank: the subtree of the virtual ranks that it plays.
void Invariant::attend_rank(int64_t layer, const Visit& visit, const TensorView& q,
                            const kernels::StoredKeys& keys, const Partial& to) {
  switch (visit.kind) {
    case Visit::Calls::merged:
      return steps_.attend(layer, visit.calls[0], q, keys, to);
    case Visit::Calls::stacked:
      return attend_stacked(layer, visit, q, keys, to);
    case Visit::Calls::leaves:
      return attend_subtree(layer, visit, q, keys, 0, played(), 0, to);
  }
}

/// Leaf by leaf, each merged as soon as its sibling is there: one result waits for each level.
void Invariant::attend_subtree(int64_t layer, const Visit& visit, const TensorView& q,
                               const kernels::StoredKeys& keys, int first, int count, size_t depth,
                               const Partial& to) {
  if (count == 1) return steps_.attend(layer, visit.calls[first], q, keys, to);
  const int half = count / 2;
  attend_subtree(layer, visit, q, keys, first, half, depth, to);
  const Partial right = steps_.partial(subtrees_[depth], q.rows());
  attend_subtree(layer, visit, q, keys, first + half, half, depth + 1, right);
  steps_.merge(right, to);
}

/// All leaves at once, on a copy of the queries for each.
void Invariant::attend_stacked(int64_t layer, const Visit& visit, const TensorView& q,
                               const kernels::StoredKeys& keys, const Partial& to) {
  const int64_t rows = q.rows();
  const TensorView queries = steps_.queries(stacked_q_, played() * rows, DType::fp32);
  const Partial all = steps_.partial(stacked_, played() * rows);
  const auto leaf = [&](int index) {
    return Partial{all.out.slice_rows(index * rows, rows), all.lse.slice_rows(index * rows, rows)};
  };
  for (int i = 0; i < played(); ++i) compute_.copy(q, queries.slice_rows(i * rows, rows));
  steps_.attend(layer, visit.calls[0], queries, keys, all);
  MergeTree tree(played());
  for (int i = 0; i < played(); ++i)
    for (const MergeTree::Merge& step : tree.arrive(i))
      steps_.merge(leaf(step.from), leaf(step.into));
  compute_.copy(leaf(0).out, to.out);
  compute_.copy(leaf(0).lse, to.lse);
}

/// Each rank's keys visit as in ring attention. Their results are merged as the tree allows, and
/// wait until then.
void Invariant::pass_keys(int64_t layer, const TensorView& q, const Partial& to) {
  MergeTree tree(size());
  std::vector<size_t> place(size());  // in waiting_, by the first rank of a result
  std::vector<size_t> free;
  for (size_t i = waiting_.size(); i > 0; --i) free.push_back(i - 1);
  const auto result = [&](int of) {  // the root's place is that of rank 0
    return of == 0 ? to : steps_.partial(waiting_[place[of]], q.rows());
  };
  steps_.messages().pass_round(layer, {}, {}, [&](int step, const kernels::StoredKeys& keys) {
    const int visitor = rows_->visiting(step);
    if (visitor != 0) {
      place[visitor] = free.back();
      free.pop_back();
    }
    attend_rank(layer, visit_of(layer, step), q, keys, result(visitor));
    for (const MergeTree::Merge& ready : tree.arrive(visitor)) {
      steps_.merge(result(ready.from), result(ready.into));
      free.push_back(place[ready.from]);
    }
  });
}

/// Every rank attends all queries to its own keys and sends each rank's results home, where they
/// are merged.
void Invariant::pass_queries(int64_t layer, const TensorView& q, const Partial& to) {
  const TensorView queries = steps_.queries(all_q_, all_rows_, DType::fp32);
  const Partial here = steps_.partial(all_partial_, all_rows_);
  comm::Blocks blocks;
  std::vector<Partial> away, home;  // by rank; the root of the tree where it is wanted
  int64_t begin = 0;
  for (int other = 0; other < size(); ++other) {
    blocks.send.push_back(bytes_of(q));
    const int64_t count = rows_->count(other);
    blocks.receive.push_back(bytes_of(queries.slice_rows(begin, count)));
    away.push_back({here.out.slice_rows(begin, count), here.lse.slice_rows(begin, count)});
    home.push_back(other == 0 ? to : steps_.partial(waiting_[other], q.rows()));
    begin += count;
  }
  steps_.wait(*steps_.ring().start_all_to_all(blocks), "all_queries",
              (size() - 1) * static_cast<int64_t>(bytes_of(q).size()));
  attend_rank(layer, visit_of(layer, 0), queries, steps_.cached(layer), here);
  steps_.send_home(away, home);
  MergeTree tree(size());
  for (int other = 0; other < size(); ++other)
    for (const MergeTree::Merge& ready : tree.arrive(other))
      steps_.merge(home[ready.from], home[ready.into]);
}

}  // namespace pecia::attention
