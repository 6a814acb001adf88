// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/broadcast_q.hpp"

#include "lib/model/attention/pass_calls.hpp"

namespace pecia::attention {

using parallel::GlobalRange;
using parallel::IndexRun;
using parallel::StridedRange;

namespace {

/// The rows of a sequence that see keys of a rank, counted among them.
std::vector<IndexRun> rows_that_see(const PassRows& pass, kernels::Window window,
                                    const SequenceRows& rows, int rank) {
  if (rows.ranges.empty()) return {};  // in a step, a sequence has its row on one rank
  std::vector<StridedRange> keys;
  for (const parallel::SequenceId member : pass.lineage(rows.sequence)) {
    const std::vector<StridedRange>& held = pass.ranges(member, rank);
    keys.insert(keys.end(), held.begin(), held.end());
  }
  if (window > 0) return parallel::rows_that_see(window, rows.ranges, keys);
  const int64_t count = rows.count();
  return keys.empty() || count == 0 ? std::vector<IndexRun>{} : std::vector<IndexRun>{{0, count}};
}

}  // namespace

void BroadcastQ::begin_pass(const PassRows& rows, std::span<const kernels::Window> windows) {
  rows_ = &rows;
  visitors_.clear();
  for (const kernels::Window window : windows) visitors_[window] = visitors(window);
}

BroadcastQ::Visitors BroadcastQ::visitors(kernels::Window window) const {
  const PassRows& pass = *rows_;
  const PassCalls calls(steps_, pass);
  Visitors visitors{
      std::vector<std::vector<int64_t>>(pass.size()), std::vector<int64_t>(pass.size()), {}};
  const SequenceRuns cached = calls.in_cache(steps_.kind(steps_.kind_of_window(window)));
  const std::vector<SequenceRows> own = pass.rows_at(pass.index());
  calls.add(visitors.batch, own, cached);
  for (int other = 0; other < pass.size(); ++other) {
    if (other == pass.index()) continue;
    int64_t first = 0;  // of the sequence's rows here
    for (const SequenceRows& rows : own) {
      for (const IndexRun& run : rows_that_see(pass, window, rows, other))
        for (int64_t i = 0; i < run.count; ++i)
          visitors.leaving[other].push_back(first + run.begin + i);
      first += rows.count();
    }
    std::vector<SequenceRows> coming;
    for (const SequenceRows& rows : pass.rows_at(other)) {
      const std::vector<IndexRun> seeing = rows_that_see(pass, window, rows, pass.index());
      if (seeing.empty()) continue;
      std::vector<StridedRange> all;
      for (const GlobalRange& range : rows.ranges) all.push_back({range.begin, range.size()});
      coming.push_back({rows.sequence, {}});
      for (const StridedRange& range : positions_of(seeing, all))
        coming.back().ranges.push_back({range.begin, range.begin + range.count});
      visitors.coming[other] += count_tokens(seeing);
    }
    calls.add(visitors.batch, coming, cached);
  }
  return visitors;
}

int64_t BroadcastQ::bytes_without_window(const PassRows& pass, const KvShape& shape) const {
  int64_t bytes = 0;
  for (int other = 0; other < pass.size(); ++other) {
    if (other == pass.index()) continue;
    for (const SequenceRows& rows : pass.rows_at(pass.index()))
      bytes += count_tokens(rows_that_see(pass, 0, rows, other)) * steps_.query_bytes(shape);
    for (const SequenceRows& rows : pass.rows_at(other))
      bytes +=
          count_tokens(rows_that_see(pass, 0, rows, pass.index())) * steps_.result_bytes(shape);
  }
  return bytes;
}

void BroadcastQ::run(int64_t layer, const LayerRows& x, const Partial& to) {
  const auto& [leaving, coming, call] = visitors_.at(steps_.window(layer));
  const int size = rows_->size();
  const int64_t own = x.q.rows(), total = static_cast<int64_t>(call.positions.size());

  // Own queries first, visitors where they are received.
  const DType type = steps_.visitor_type();
  const TensorView batch_q = total == own ? x.q : steps_.queries(batch_q_, total, type);
  if (total > own) compute_.copy(x.q, batch_q.slice_rows(0, own));
  const TensorView arrived = type == steps_.wire() || total == own
                                 ? batch_q
                                 : steps_.queries(arrived_q_, total, steps_.wire());
  comm::Blocks queries;
  int64_t row = own, sent = 0;
  for (int other = 0; other < size; ++other) {
    const auto count = static_cast<int64_t>(leaving[other].size());
    const TensorView packed = steps_.queries(steps_.away(other).out, count, steps_.wire());
    for (int64_t i = 0; i < count;) {
      int64_t end = i + 1;  // of rows next to each other
      while (end < count && leaving[other][end] == leaving[other][end - 1] + 1) ++end;
      compute_.copy(x.q.slice_rows(leaving[other][i], end - i), packed.slice_rows(i, end - i));
      i = end;
    }
    queries.send.push_back(bytes_of(packed));
    queries.receive.push_back(bytes_of(arrived.slice_rows(row, coming[other])));
    row += coming[other];
    sent += static_cast<int64_t>(queries.send.back().size());
  }
  steps_.wait(*compute_.start_all_to_all(steps_.ring(), queries), "broadcast_q", sent);
  if (arrived.dtype() != batch_q.dtype())
    compute_.copy(arrived.slice_rows(own, total - own), batch_q.slice_rows(own, total - own));

  const Partial batch = total == own ? to : steps_.partial(batch_part_, total);
  steps_.attend(layer, call, batch_q, steps_.cached(layer), batch);
  if (total > own) {  // the own part is where the others are merged into
    compute_.copy(batch.out.slice_rows(0, own), to.out);
    compute_.copy(batch.lse.slice_rows(0, own), to.lse);
  }
  std::vector<Partial> away, home;
  row = own;
  for (int other = 0; other < size; ++other) {
    away.push_back(
        {batch.out.slice_rows(row, coming[other]), batch.lse.slice_rows(row, coming[other])});
    home.push_back(steps_.coming(steps_.home(other), static_cast<int64_t>(leaving[other].size())));
    row += coming[other];
  }
  steps_.send_home(away, home);
  for (int other = 0; other < size; ++other)
    if (!leaving[other].empty()) steps_.merge(home[other], to, leaving[other]);
}

}  // namespace pecia::attention
