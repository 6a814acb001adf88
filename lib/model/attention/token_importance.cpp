// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/token_importance.hpp"

#include <algorithm>
#include <utility>

#include "lib/model/attention/level_rows.hpp"

namespace pecia::attention {

using report::Kind;
using report::ScopedSpan;

std::vector<int64_t> sampled_rows(int64_t rows, int64_t last, int64_t others) {
  const int64_t before = std::max<int64_t>(0, rows - last), between = std::min(others, before);
  std::vector<int64_t> found;
  for (int64_t i = 0; i < between; ++i) found.push_back((i + 1) * before / (between + 1));
  for (int64_t row = before; row < rows; ++row) found.push_back(row);
  return found;
}

TokenImportance::TokenImportance(const Compute& compute, KvCache& cache,
                                 const AttentionSteps& steps)
    : compute_(compute),
      cache_(cache),
      steps_(steps),
      gathered_(compute),
      messages_(compute.buffer()),
      numbers_(compute.buffer()) {}

void TokenImportance::begin_pass(comm::Communicator& ring, std::vector<Sequence> sequences) {
  ring_ = &ring;
  sequences_ = std::move(sequences);
  samples_.clear();
  num_samples_ = num_numbers_ = 0;
  known_ = false;
  std::vector<int64_t> of_ranks(ring.size());
  for (const Sequence& sequence : sequences_) {
    int64_t rows = 0;
    for (const auto& of_rank : sequence.positions) rows += std::ssize(of_rank);
    const std::vector<int64_t> sampled = sampled_rows(rows, last_samples, other_samples);
    Samples& samples = samples_.emplace_back();
    samples.in_rank = of_ranks;
    samples.first = num_samples_;
    auto next = sampled.begin();
    int64_t first = 0;  // row of the sequence that the rank begins with
    for (int rank = 0; rank < ring.size(); ++rank) {
      const std::vector<int64_t>& positions = sequence.positions[rank];
      samples.begin.push_back(std::ssize(samples.positions));
      for (; next != sampled.end() && *next < first + std::ssize(positions); ++next) {
        if (rank == ring.rank()) samples.own_rows.push_back(sequence.first_row + *next - first);
        samples.positions.push_back(positions[*next - first]);
        ++of_ranks[rank];
      }
      first += std::ssize(positions);
    }
    samples.begin.push_back(std::ssize(samples.positions));
    num_samples_ += std::ssize(samples.positions);
    for (const kernels::KeyRun& run : sequence.runs) samples.tokens += run.num_keys;
    samples.first_number = num_numbers_;
    num_numbers_ += samples.tokens * cache_.shape().num_kv_heads;
  }
  first_of_rank_.assign(1, 0);
  for (const int64_t count : of_ranks) first_of_rank_.push_back(first_of_rank_.back() + count);
}

/// The samples of a sequence.
Partial TokenImportance::samples(const Samples& of) const {
  const auto count = std::ssize(of.positions);
  const auto all = [&](const device::Buffer& buffer, std::initializer_list<int64_t> shape) {
    return TensorView(static_cast<void*>(buffer.data()), DType::fp32, shape)
        .slice_rows(of.first, count);
  };
  return {all(gathered_.out, {num_samples_, steps_.num_heads(), steps_.head_dim()}),
          all(gathered_.lse, {num_samples_, steps_.num_heads()})};
}

/// The message with the samples of a rank.
TensorView TokenImportance::samples_of(int rank) const {
  const int64_t width = steps_.num_heads() * (steps_.head_dim() + 1);
  return TensorView(static_cast<void*>(messages_.data()), DType::fp32, {num_samples_, width})
      .slice_rows(first_of_rank_[rank], first_of_rank_[rank + 1] - first_of_rank_[rank]);
}

/// Returns the bytes that it sent.
int64_t TokenImportance::gather_samples(const TensorView& q, const Partial& attended) {
  steps_.partial(gathered_, num_samples_);
  const int64_t heads = steps_.num_heads(), width = heads * steps_.head_dim();
  messages_.reserve(num_samples_ * (width + heads) * size_of(DType::fp32));
  const TensorView own = samples_of(ring_->rank());
  RowPicks leaving;
  for (const Samples& of : samples_)
    for (size_t i = 0; i < of.own_rows.size();) {  // rows next to each other go together
      size_t end = i + 1;
      while (end < of.own_rows.size() && of.own_rows[end] == of.own_rows[end - 1] + 1) ++end;
      const auto count = static_cast<int64_t>(end - i);
      const TensorView to =
          own.slice_rows(of.in_rank[ring_->rank()] + static_cast<int64_t>(i), count);
      const TensorView rows = q.slice_rows(of.own_rows[i], count);
      leaving.add(rows.reshape({count, width}), {}, to.slice_columns(0, width));
      leaving.add(attended.lse.slice_rows(of.own_rows[i], count), {},
                  to.slice_columns(width, heads));
      i = end;
    }
  leaving.run(compute_);

  comm::Exchange exchange;
  int64_t sent = 0;
  for (int rank = 0; rank < ring_->size(); ++rank) {
    if (rank == ring_->rank()) continue;
    if (own.rows() > 0) exchange.sends.push_back({bytes_of(own), rank});
    sent += static_cast<int64_t>(bytes_of(own).size());
    if (const TensorView theirs = samples_of(rank); theirs.rows() > 0)
      exchange.receives.push_back({bytes_of(theirs), rank});
  }
  const comm::Operation operation{"importance", ring_->next_operation()};
  {
    const ScopedSpan span(compute_.recorder, "importance_samples", Kind::comm, sent);
    ring_->start_exchange(exchange, operation)->wait();
  }

  RowPicks coming;
  for (const Samples& of : samples_) {
    const Partial all = samples(of);
    for (int rank = 0; rank < ring_->size(); ++rank) {
      const int64_t begin = of.begin[rank], count = of.begin[rank + 1] - begin;
      const TensorView from = samples_of(rank).slice_rows(of.in_rank[rank], count);
      coming.add(from.slice_columns(0, width), {},
                 all.out.slice_rows(begin, count).reshape({count, width}));
      coming.add(from.slice_columns(width, heads), {}, all.lse.slice_rows(begin, count));
    }
  }
  coming.run(compute_);
  return sent;
}

/// Returns the pairs of a sample and a key, of all query heads.
double TokenImportance::sum_columns(int64_t layer, kernels::Window window) {
  const ScopedSpan span(compute_.recorder, "importance", Kind::compute);
  const KvShape& shape = cache_.shape();
  numbers_.reserve(num_numbers_ * size_of(DType::fp32));
  double pairs = 0;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const Samples& of = samples_[i];
    const Partial sampled = samples(of);
    const TensorView of_sequence(static_cast<void*>(numbers_.as<float>() + of.first_number),
                                 DType::fp32, {shape.num_kv_heads, of.tokens});
    int64_t before = 0;
    for (const kernels::KeyRun& run : sequences_[i].runs) {
      compute_.backend.column_sums({.q = sampled.out,
                                    .lse = sampled.lse,
                                    .query_positions = of.positions,
                                    .run = run,
                                    .keys = steps_.cached(layer),
                                    .kv_dtype = shape.dtype,
                                    .num_kv_heads = shape.num_kv_heads,
                                    .scale = steps_.scale(),
                                    .window = window,
                                    .sums = of_sequence.slice_columns(before, run.num_keys)},
                                   compute_.stream);
      before += run.num_keys;
    }
    pairs += static_cast<double>(steps_.num_heads() * of.tokens) *
             static_cast<double>(sampled.out.rows());
  }
  return pairs;
}

WeighCost TokenImportance::weigh(int64_t layer, kernels::Window window, const TensorView& q,
                                 const Partial& attended) {
  WeighCost cost;
  cost.sent_bytes = gather_samples(q, attended);
  cost.pairs = sum_columns(layer, window);
  known_ = true;
  return cost;
}

}  // namespace pecia::attention
