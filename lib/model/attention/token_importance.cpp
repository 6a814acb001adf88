// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/token_importance.hpp"

#include <algorithm>
#include <cmath>

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
      sums_(compute.buffer()),
      read_sums_(compute.device, device::Memory::pinned) {}

void TokenImportance::begin_pass(comm::Communicator& ring, std::vector<Sequence> sequences) {
  ring_ = &ring;
  sequences_ = std::move(sequences);
  samples_.clear();
  num_samples_ = 0;
  known_ = false;
  importance_.resize(sequences_.size());
  for (const Sequence& sequence : sequences_) {
    int64_t rows = 0;
    for (const auto& of_rank : sequence.positions) rows += std::ssize(of_rank);
    const std::vector<int64_t> sampled = sampled_rows(rows, last_samples, other_samples);
    Samples& samples = samples_.emplace_back();
    auto next = sampled.begin();
    int64_t first = 0;  // row of the sequence that the rank begins with
    for (int rank = 0; rank < ring.size(); ++rank) {
      const std::vector<int64_t>& positions = sequence.positions[rank];
      samples.begin.push_back(std::ssize(samples.positions));
      for (; next != sampled.end() && *next < first + std::ssize(positions); ++next) {
        if (rank == ring.rank()) samples.own_rows.push_back(sequence.first_row + *next - first);
        samples.positions.push_back(positions[*next - first]);
      }
      first += std::ssize(positions);
    }
    samples.begin.push_back(std::ssize(samples.positions));
    num_samples_ += std::ssize(samples.positions);
  }
}

/// The samples of a sequence, which begin at entry `first`.
Partial TokenImportance::samples(const Samples& of, int64_t first) const {
  const auto count = std::ssize(of.positions);
  const auto all = [&](const device::Buffer& buffer, std::initializer_list<int64_t> shape) {
    return TensorView(static_cast<void*>(buffer.data()), DType::fp32, shape)
        .slice_rows(first, count);
  };
  return {all(gathered_.out, {num_samples_, steps_.num_heads(), steps_.head_dim()}),
          all(gathered_.lse, {num_samples_, steps_.num_heads()})};
}

/// Returns the bytes that it sent.
int64_t TokenImportance::gather_samples(const TensorView& q, const Partial& attended) {
  steps_.partial(gathered_, num_samples_);
  comm::Exchange exchange;
  int64_t first = 0, sent = 0;
  for (const Samples& of : samples_) {
    const Partial all = samples(of, first);
    first += std::ssize(of.positions);
    for (int rank = 0; rank < ring_->size(); ++rank) {
      const int64_t begin = of.begin[rank], count = of.begin[rank + 1] - begin;
      if (count == 0) continue;
      const Partial theirs{all.out.slice_rows(begin, count), all.lse.slice_rows(begin, count)};
      if (rank != ring_->rank()) {
        exchange.receives.push_back({bytes_of(theirs.out), rank});
        exchange.receives.push_back({bytes_of(theirs.lse), rank});
        continue;
      }
      for (int64_t i = 0; i < count; ++i) {
        compute_.copy(q.slice_rows(of.own_rows[i], 1), theirs.out.slice_rows(i, 1));
        compute_.copy(attended.lse.slice_rows(of.own_rows[i], 1), theirs.lse.slice_rows(i, 1));
      }
      for (int to = 0; to < ring_->size(); ++to) {
        if (to == rank) continue;
        exchange.sends.push_back({bytes_of(theirs.out), to});
        exchange.sends.push_back({bytes_of(theirs.lse), to});
        sent += static_cast<int64_t>(bytes_of(theirs.out).size() + bytes_of(theirs.lse).size());
      }
    }
  }
  const comm::Operation operation{"importance", ring_->next_operation()};
  const ScopedSpan span(compute_.recorder, "importance_samples", Kind::comm, sent);
  ring_->start_exchange(exchange, operation)->wait();
  return sent;
}

/// Returns the pairs of a sample and a key, of all query heads.
double TokenImportance::sum_columns(int64_t layer, int64_t window) {
  const ScopedSpan span(compute_.recorder, "importance", Kind::compute);
  const KvShape& shape = cache_.shape();
  const int64_t heads = steps_.num_heads(), group = heads / shape.num_kv_heads;
  int64_t most = 0;
  for (const Sequence& sequence : sequences_) {
    int64_t tokens = 0;
    for (const kernels::KeyRun& run : sequence.runs) tokens += run.num_keys;
    most = std::max(most, tokens);
  }
  const int64_t bytes = heads * most * size_of(DType::fp32);
  sums_.reserve(bytes);
  if (read_sums_.bytes() < bytes) {
    read_sums_.reserve(bytes);
    std::fill_n(read_sums_.as<float>(), heads * most, 0.0f);  // a phantom's copies bring nothing
  }
  int64_t first = 0;
  double pairs = 0;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const Partial sampled = samples(samples_[i], first);
    first += std::ssize(samples_[i].positions);
    int64_t tokens = 0;
    for (const kernels::KeyRun& run : sequences_[i].runs) {
      const TensorView of_run(static_cast<void*>(sums_.as<float>() + heads * tokens), DType::fp32,
                              {heads, run.num_keys});
      compute_.backend.column_sums({.q = sampled.out,
                                    .lse = sampled.lse,
                                    .query_positions = samples_[i].positions,
                                    .run = run,
                                    .keys = steps_.cached(layer),
                                    .kv_dtype = shape.dtype,
                                    .num_kv_heads = shape.num_kv_heads,
                                    .scale = steps_.scale(),
                                    .window = window,
                                    .sums = of_run},
                                   compute_.stream);
      tokens += run.num_keys;
    }
    pairs += static_cast<double>(heads * tokens) * static_cast<double>(sampled.out.rows());
    compute_.device.copy(read_sums_.data(), sums_.data(), heads * tokens * size_of(DType::fp32),
                         compute_.stream);
    compute_.stream.synchronize();
    std::vector<float>& importance = importance_[i];
    importance.assign(shape.num_kv_heads * tokens, 0.0f);
    int64_t before = 0;
    for (const kernels::KeyRun& run : sequences_[i].runs) {
      const float* of_head = read_sums_.as<float>() + heads * before;
      for (int64_t head = 0; head < heads; ++head, of_head += run.num_keys) {
        float* const to = importance.data() + head / group * tokens + before;
        for (int64_t key = 0; key < run.num_keys; ++key)
          if (of_head[key] > 0) to[key] += of_head[key];  // never NaN
      }
      before += run.num_keys;
    }
  }
  return pairs;
}

WeighCost TokenImportance::weigh(int64_t layer, int64_t window, const TensorView& q,
                                 const Partial& attended) {
  WeighCost cost;
  cost.sent_bytes = gather_samples(q, attended);
  cost.pairs = sum_columns(layer, window);
  known_ = true;
  return cost;
}

}  // namespace pecia::attention
