// SPDX-License-Identifier: Apache-2.0
/// RingAttention in one exchange instead of N − 1 steps: each rank sends its queries to the ranks
/// that hold keys of their sequence, attends its own and the visiting queries together, and the
/// partial outputs go home. In layers with a window a query goes only to ranks with keys that it
/// sees, also where queries of other layers go round a ring. Sources: CSPS §4; LoongServe
/// (multi-master distributed decoding).

#include "lib/context/ring_attention.hpp"

namespace pecia::context {

using parallel::GlobalRange;
using parallel::IndexRun;
using parallel::StridedRange;

/// The rows that are attended to the keys of a rank, counted among these rows.
std::vector<IndexRun> RingAttention::rows_that_see(int64_t window, const Rows& rows,
                                                   int rank) const {
  if (rows.ranges.empty()) return {};  // in a step, a sequence has its row on one rank
  std::vector<StridedRange> keys;
  for (const parallel::SequenceId member : ledger_.map().lineage(rows.sequence)) {
    const std::vector<StridedRange>& held = ranges(member, rank);
    keys.insert(keys.end(), held.begin(), held.end());
  }
  if (window > 0) return parallel::rows_that_see(window, rows.ranges, keys);
  int64_t count = 0;
  for (const GlobalRange& range : rows.ranges) count += range.size();
  return keys.empty() || count == 0 ? std::vector<IndexRun>{} : std::vector<IndexRun>{{0, count}};
}

/// Rows that leave and rows that come, in the order of the pass. The one batched attention has this
/// rank's rows first, then the visitors' by rank.
RingAttention::Visitors RingAttention::visitors(const Pass& pass, int64_t window) const {
  Visitors visitors{std::vector<std::vector<int64_t>>(size()), std::vector<int64_t>(size()), {}};
  const SequenceRuns cached = runs_in_cache(keeps_of(window));
  const std::vector<Rows> own = rows_at(pass, index_);
  add_items(visitors.batch, own, cached);
  for (int other = 0; other < size(); ++other) {
    if (other == index_) continue;
    int64_t first = 0;  // of the sequence's rows here
    for (const Rows& rows : own) {
      for (const IndexRun& run : rows_that_see(window, rows, other))
        for (int64_t i = 0; i < run.count; ++i)
          visitors.leaving[other].push_back(first + run.begin + i);
      for (const GlobalRange& range : rows.ranges) first += range.size();
    }
    std::vector<Rows> coming;
    for (const Rows& rows : rows_at(pass, other)) {
      const std::vector<IndexRun> seeing = rows_that_see(window, rows, index_);
      if (seeing.empty()) continue;
      std::vector<StridedRange> all;
      for (const GlobalRange& range : rows.ranges) all.push_back({range.begin, range.size()});
      coming.push_back({rows.sequence, {}});
      for (const StridedRange& range : positions_of(seeing, all))
        coming.back().ranges.push_back({range.begin, range.begin + range.count});
      visitors.coming[other] += count_tokens(seeing);
    }
    add_items(visitors.batch, coming, cached);
  }
  return visitors;
}

/// Where queries go round a ring, only those of layers with a window go straight.
void RingAttention::plan_visitors(const Pass& pass) {
  for (const int64_t window : windows_)
    if (!visitors_.contains(window) && (window > 0 || team_.ring == parallel::Ring::broadcast_q))
      visitors_[window] = visitors(pass, window);
}

void RingAttention::run_broadcast_q(int64_t layer, const Visitors& visitors, const TensorView& q,
                                    const TensorView& out) {
  const auto& [leaving, coming, call] = visitors;
  const int64_t own = q.rows(), total = static_cast<int64_t>(call.positions.size());

  // Own queries first, visitors where they are received.
  const TensorView batch_q = total == own ? q : steps_.queries(batch_q_, total);
  if (total > own) compute_.copy(q, batch_q.slice_rows(0, own));
  comm::Blocks queries;
  int64_t row = own, sent = 0;
  for (int other = 0; other < size(); ++other) {
    const auto count = static_cast<int64_t>(leaving[other].size());
    const TensorView packed = steps_.queries(away_[other].out, count);
    for (int64_t i = 0; i < count;) {
      int64_t end = i + 1;  // of rows next to each other
      while (end < count && leaving[other][end] == leaving[other][end - 1] + 1) ++end;
      compute_.copy(q.slice_rows(leaving[other][i], end - i), packed.slice_rows(i, end - i));
      i = end;
    }
    queries.send.push_back(bytes_of(packed));
    queries.receive.push_back(bytes_of(batch_q.slice_rows(row, coming[other])));
    row += coming[other];
    sent += static_cast<int64_t>(queries.send.back().size());
  }
  steps_.wait(*ring_->start_all_to_all(queries), "broadcast_q", sent);

  const Partial to{out, steps_.lse(lse_, own)};
  const Partial batch = total == own ? to : steps_.partial(batch_part_, total);
  steps_.attend(layer, call, batch_q, steps_.cached(layer), batch);
  if (total > own) {  // the own part is where the others are merged into
    compute_.copy(batch.out.slice_rows(0, own), out);
    compute_.copy(batch.lse.slice_rows(0, own), to.lse);
  }
  std::vector<Partial> away, home;
  row = own;
  for (int other = 0; other < size(); ++other) {
    away.push_back(
        {batch.out.slice_rows(row, coming[other]), batch.lse.slice_rows(row, coming[other])});
    home.push_back(steps_.partial(home_[other], static_cast<int64_t>(leaving[other].size())));
    row += coming[other];
  }
  steps_.send_home(away, home);
  for (int other = 0; other < size(); ++other)
    if (!leaving[other].empty()) steps_.merge(home[other], to, leaving[other]);
  steps_.add_sinks(layer, to);
}

}  // namespace pecia::context
