// SPDX-License-Identifier: Apache-2.0
/// RingAttention in one exchange instead of N − 1 steps: each rank sends its queries to the ranks
/// that hold keys of their sequence, attends its own and the visiting queries together, and the
/// partial outputs go home. Sources: CSPS §4; LoongServe (multi-master distributed decoding).

#include "lib/context/ring_attention.hpp"

namespace pecia::context {

using parallel::PassSequence;

bool RingAttention::holds_keys(const PassSequence& sequence, int rank) const {
  for (const parallel::SequenceId member : ledger_.map().lineage(sequence.sequence))
    if (held(member, rank) > 0) return true;
  return false;
}

/// Rows that leave and rows that visit, by rank: those of the sequences that the other rank holds
/// keys of, in the order of the pass. The pass of the one batched attention has this rank's rows
/// first, then the visitors' by rank.
void RingAttention::plan_visitors(const Pass& pass) {
  const int rank = index_;
  leaving_.assign(size(), {});
  visiting_.assign(size(), 0);
  batch_ = {};
  std::vector<int64_t> begin(size(), 0);  // of the sequence's rows on each rank
  std::vector<std::pair<Pass, std::vector<int64_t>>> visitors(size());
  for (const PassSequence& sequence : pass) {
    for (int other = 0; other < size(); ++other) {
      const int64_t rows = parallel::num_rows({sequence}, team_, other);
      const auto first = query_positions_[other].begin() + begin[other];
      if (other == rank) {
        for (int holder = 0; holder < size(); ++holder)
          if (holder != rank && holds_keys(sequence, holder))
            for (int64_t i = 0; i < rows; ++i) leaving_[holder].push_back(begin[rank] + i);
      } else if (rows > 0 && holds_keys(sequence, rank)) {
        visitors[other].first.push_back(sequence);
        visitors[other].second.insert(visitors[other].second.end(), first, first + rows);
      }
      begin[other] += rows;
    }
  }
  const SequenceRuns own = runs_in_cache();
  add_items(batch_, pass, rank, query_positions_[rank], own);
  for (int other = 0; other < size(); ++other) {
    const auto& [sequences, positions] = visitors[other];
    visiting_[other] = static_cast<int64_t>(positions.size());
    add_items(batch_, sequences, other, positions, own);
  }
}

void RingAttention::run_broadcast_q(int64_t layer, const TensorView& q, const TensorView& out) {
  const int64_t own = q.rows(), total = static_cast<int64_t>(batch_.positions.size());

  // Own queries first, visitors where they are received.
  const TensorView batch_q = steps_.queries(batch_q_, total);
  compute_.copy(q, batch_q.slice_rows(0, own));
  comm::Blocks queries;
  int64_t row = own, sent = 0;
  for (int other = 0; other < size(); ++other) {
    const auto leaving = static_cast<int64_t>(leaving_[other].size());
    const TensorView packed = steps_.queries(away_[other].out, leaving);
    for (int64_t i = 0; i < leaving; ++i)
      compute_.copy(q.slice_rows(leaving_[other][i], 1), packed.slice_rows(i, 1));
    queries.send.push_back(bytes_of(packed));
    queries.receive.push_back(bytes_of(batch_q.slice_rows(row, visiting_[other])));
    row += visiting_[other];
    sent += static_cast<int64_t>(queries.send.back().size());
  }
  steps_.wait(*ring_->start_all_to_all(queries), "broadcast_q", sent);

  const Partial batch = steps_.partial(part_, total);
  steps_.attend(layer, batch_, batch_q, steps_.cached(layer), batch);

  // The own part is where the others are merged into.
  const Partial to{out, steps_.lse(lse_, own)};
  compute_.copy(batch.out.slice_rows(0, own), out);
  compute_.copy(batch.lse.slice_rows(0, own), to.lse);
  std::vector<Partial> away, home;
  row = own;
  for (int other = 0; other < size(); ++other) {
    const auto coming = static_cast<int64_t>(leaving_[other].size());
    away.push_back(
        {batch.out.slice_rows(row, visiting_[other]), batch.lse.slice_rows(row, visiting_[other])});
    home.push_back(steps_.partial(home_[other], coming));
    row += visiting_[other];
  }
  steps_.send_home(away, home);
  for (int other = 0; other < size(); ++other)
    if (other != index_ && !leaving_[other].empty()) steps_.merge(home[other], to, leaving_[other]);
  steps_.add_sinks(layer, to);
}

}  // namespace pecia::context
