/// RingAttention in one exchange instead of N − 1 steps: each rank sends its queries to the ranks
/// that hold keys of their sequence, attends its own and the visiting queries together, and the
/// partial outputs go home. Sources: CSPS §4; LoongServe (multi-master distributed decoding).

#include <cstring>

#include "lib/context/ring_attention.hpp"

namespace pecia::context {

using parallel::PassSequence;
using report::Kind;
using report::ScopedSpan;

namespace {

std::span<std::byte> bytes_of(const TensorView& tensor) {
  return {static_cast<std::byte*>(tensor.data()),
          static_cast<size_t>(tensor.elements() * size_of(tensor.dtype()))};
}

}  // namespace

bool RingAttention::holds_keys(const PassSequence& sequence, int rank) const {
  for (const parallel::SequenceId member : map_.lineage(sequence.sequence))
    if (map_.held(member, rank) > 0) return true;
  return false;
}

/// Rows that leave and rows that visit, by rank: those of the sequences that the other rank holds
/// keys of, in the order of the pass. The pass of the one batched attention has this rank's rows
/// first, then the visitors' by rank.
void RingAttention::plan_visitors(const Pass& pass) {
  const int rank = ring_.rank();
  leaving_.assign(size(), {});
  visiting_.assign(size(), 0);
  batch_ = {};
  batch_positions_ = query_positions_[rank];
  std::vector<int64_t> begin(size(), 0);  // of the sequence's rows on each rank
  std::vector<std::pair<Pass, std::vector<int64_t>>> visitors(size());
  for (const PassSequence& sequence : pass) {
    for (int other = 0; other < size(); ++other) {
      const int64_t rows = parallel::num_rows({sequence}, size(), other);
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
  for (int other = 0; other < size(); ++other) {
    visiting_[other] = static_cast<int64_t>(visitors[other].second.size());
    batch_positions_.insert(batch_positions_.end(), visitors[other].second.begin(),
                            visitors[other].second.end());
  }
  int64_t row = 0;
  const UnitRuns own = runs_in_cache(key_positions_[0]);
  add_items(batch_, pass, rank, rank, row, batch_positions_, own);
  for (int other = 0; other < size(); ++other)
    add_items(batch_, visitors[other].first, other, rank, row, batch_positions_, own);
}

void RingAttention::run_broadcast_q(int64_t layer, const TensorView& q, const TensorView& out) {
  const int rank = ring_.rank();
  const int64_t own = q.rows(), total = static_cast<int64_t>(batch_positions_.size());
  const auto floats = [&](int64_t rows) { return rows * num_heads_ * head_dim(); };

  // Own queries first, visitors where they are received.
  const TensorView batch_q = batch_q_.tensor(DType::fp32, {total, num_heads_, head_dim()});
  if (own > 0) std::memcpy(batch_q.data(), q.data(), bytes_of(q).size());
  comm::Blocks queries;
  int64_t row = own, sent = 0;
  for (int other = 0; other < size(); ++other) {
    const auto leaving = static_cast<int64_t>(leaving_[other].size());
    const TensorView packed = away_[other].tensor(DType::fp32, {leaving, num_heads_, head_dim()});
    for (int64_t i = 0; i < leaving; ++i)
      std::memcpy(packed.row(i), q.row(leaving_[other][i]), floats(1) * size_of(DType::fp32));
    queries.send.push_back(bytes_of(packed));
    queries.receive.push_back(bytes_of(batch_q.slice_rows(row, visiting_[other])));
    row += visiting_[other];
    sent += static_cast<int64_t>(queries.send.back().size());
  }
  wait(*ring_.start_all_to_all(queries), "broadcast_q", sent);

  const TensorView batch_out = part_out_.tensor(DType::fp32, {total, num_heads_, head_dim()});
  const TensorView batch_lse = part_lse_.tensor(DType::fp32, {total, num_heads_});
  attend(layer, batch_, batch_positions_, batch_q, cache_.k(layer).data(), cache_.v(layer).data(),
         batch_out, batch_lse);

  // O and LSE go home as two blocks; the own part is where the others are merged into.
  const TensorView lse = lse_.tensor(DType::fp32, {own, num_heads_});
  if (own > 0) {
    std::memcpy(out.data(), batch_out.data(), bytes_of(out).size());
    std::memcpy(lse.data(), batch_lse.data(), bytes_of(lse).size());
  }
  comm::Blocks outs, lses;
  std::vector<TensorView> home_out, home_lse;
  row = own, sent = 0;
  for (int other = 0; other < size(); ++other) {
    const auto coming = static_cast<int64_t>(leaving_[other].size());
    home_[other].reserve((floats(coming) + coming * num_heads_) * size_of(DType::fp32));
    home_out.emplace_back(home_[other].data(), DType::fp32,
                          std::initializer_list<int64_t>{coming, num_heads_, head_dim()});
    home_lse.emplace_back(static_cast<void*>(home_[other].as<float>() + floats(coming)),
                          DType::fp32, std::initializer_list<int64_t>{coming, num_heads_});
    outs.send.push_back(bytes_of(batch_out.slice_rows(row, visiting_[other])));
    lses.send.push_back(bytes_of(batch_lse.slice_rows(row, visiting_[other])));
    outs.receive.push_back(bytes_of(home_out.back()));
    lses.receive.push_back(bytes_of(home_lse.back()));
    row += visiting_[other];
    sent += static_cast<int64_t>(outs.send.back().size() + lses.send.back().size());
  }
  {
    const ScopedSpan span(recorder_, "partial_outputs", Kind::comm, sent);
    const auto first = ring_.start_all_to_all(outs), second = ring_.start_all_to_all(lses);
    first->wait();
    second->wait();
  }
  for (int other = 0; other < size(); ++other) {
    if (other == rank || leaving_[other].empty()) continue;
    const ScopedSpan span(recorder_, "merge", Kind::compute, 8 * home_out[other].elements());
    backend_.merge({home_out[other], home_lse[other], leaving_[other], out, lse}, stream_);
  }
}

RingTraffic RingAttention::broadcast_q_traffic() const {
  RingTraffic traffic;
  for (int other = 0; other < size(); ++other) {
    const int64_t width = num_heads_ * head_dim() * size_of(DType::fp32);
    traffic.ring_bytes += static_cast<int64_t>(leaving_[other].size()) * width;
    traffic.all_to_all_bytes += visiting_[other] * (width + num_heads_ * size_of(DType::fp32));
  }
  return traffic;
}

}  // namespace pecia::context
