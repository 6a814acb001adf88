#include "lib/model/tensor_parallel.hpp"

#include <cstring>

#include "lib/parallel/heads.hpp"

namespace pecia::model {

using kernels::Accumulate;
using parallel::RowRange;
using parallel::Sharding;
using report::Kind;
using report::ScopedSpan;

namespace {

int64_t bytes_of(const TensorView& tensor) {
  return tensor.elements() * size_of(tensor.dtype());
}
std::byte* data_of(const TensorView& tensor) {
  return static_cast<std::byte*>(tensor.data());
}
std::span<std::byte> span_of(const TensorView& tensor) {
  return {data_of(tensor), static_cast<size_t>(bytes_of(tensor))};
}
std::span<float> floats_of(const TensorView& tensor) {
  return {tensor.as<float>(), static_cast<size_t>(tensor.elements())};
}

}  // namespace

TensorParallel::TensorParallel(const context::ReplicaGroups& groups, report::Recorder& recorder)
    : groups_(groups),
      recorder_(recorder),
      tp_(*groups.tp, groups.tp_servers),
      block_(*groups.block, groups.block_servers) {}

void TensorParallel::begin_pass(Sharding sharding, int64_t num_rows) {
  const parallel::BlockPlace& place = groups_.place;
  sharding_ = sharding;
  cut_ = weight_cut(sharding, place);
  vocab_cut_ = sharding == Sharding::gathered ? weight_cut(Sharding::base, place) : cut_;
  rows_ = sharded_rows(sharding, place, num_rows);
  vocab_rows_.clear();
  if (!rows_differ()) {
    vocab_rows_.push_back(rows_.own);
    return;
  }
  for (int tp_index = 0; tp_index < place.tp; ++tp_index)
    vocab_rows_.push_back(
        sharded_rows(sharding, {place.sp, place.tp, place.sp_index, tp_index}, num_rows).own);
}

bool TensorParallel::rows_differ() const {
  return sharding_ == Sharding::sp_tp || sharding_ == Sharding::gathered;
}

comm::Communicator& TensorParallel::vocab_group() const {
  return sharding_ == Sharding::shift ? *groups_.block : *groups_.tp;
}

TensorView TensorParallel::gather(const TensorView& own) {
  if (sharding_ != Sharding::sp_tp || groups_.tp->size() == 1) return own;
  std::vector<int64_t> counts;
  for (const RowRange& rows : vocab_rows_) counts.push_back(rows.size());
  return gather_outputs(own, counts);
}

TensorView TensorParallel::gather_outputs(const TensorView& own,
                                          const std::vector<int64_t>& counts) {
  if (!rows_differ() || groups_.tp->size() == 1) return own;
  int64_t total = 0;
  for (const int64_t count : counts) total += count;
  const TensorView all = gathered_.tensor(DType::fp32, {total, own.size(1)});
  std::vector<std::span<std::byte>> blocks;
  int64_t begin = 0;
  for (const int64_t count : counts) {
    blocks.push_back(span_of(all.slice_rows(begin, count)));
    begin += count;
  }
  const std::span<std::byte> mine = blocks[groups_.tp->rank()];
  if (!mine.empty()) std::memcpy(mine.data(), own.data(), mine.size());
  const ScopedSpan span(recorder_, "all_gather", Kind::comm, bytes_of(own));
  tp_.start_all_gather(blocks)->wait();
  return all;
}

void TensorParallel::add_product(const TensorView& hidden, const Multiply& multiply) {
  if (cut_.count == 1) return multiply(hidden, Accumulate::yes);
  if (!rows_differ()) {
    // One rank's product is added to the hidden states, so that the sum has them once.
    multiply(hidden, cut_.index == 0 ? Accumulate::yes : Accumulate::no);
    return sum(hidden);
  }
  const TensorView partial =
      partial_.tensor(DType::fp32, {rows_.linear.size(), hidden.row_elements()});
  const TensorView own = partial.slice_rows(rows_.own.begin - rows_.linear.begin, rows_.own.size());
  {
    const ScopedSpan span(recorder_, "copy_hidden", Kind::compute, bytes_of(partial));
    if (bytes_of(partial) > 0) std::memset(partial.data(), 0, bytes_of(partial));
    if (bytes_of(own) > 0) std::memcpy(own.data(), hidden.data(), bytes_of(own));
  }
  multiply(partial, Accumulate::yes);
  std::vector<int64_t> counts;
  for (const RowRange& rows : vocab_rows_) counts.push_back(rows.size() * hidden.row_elements());
  scatter(partial, counts, hidden);
}

void TensorParallel::embed(const TensorView& hidden, const LookUp& look_up) {
  if (vocab_cut_.count == 1) return look_up({rows_.own}, hidden);
  if (!rows_differ()) {
    look_up({rows_.own}, hidden);
    return sum(hidden);
  }
  int64_t total = 0;
  std::vector<int64_t> counts;
  for (const RowRange& rows : vocab_rows_) {
    total += rows.size();
    counts.push_back(rows.size() * hidden.row_elements());
  }
  const TensorView partial = partial_.tensor(DType::fp32, {total, hidden.row_elements()});
  look_up(vocab_rows_, partial);
  scatter(partial, counts, hidden);
}

void TensorParallel::sum(const TensorView& hidden) {
  const ScopedSpan span(recorder_, "all_reduce", Kind::comm, bytes_of(hidden));
  comm::Collectives& group = sharding_ == Sharding::shift ? block_ : tp_;
  group.start_all_reduce(floats_of(hidden))->wait();
}

void TensorParallel::scatter(const TensorView& partial, const std::vector<int64_t>& counts,
                             const TensorView& hidden) {
  const ScopedSpan span(recorder_, "reduce_scatter", Kind::comm, bytes_of(partial));
  tp_.start_reduce_scatter(floats_of(partial), counts, floats_of(hidden))->wait();
}

RowRange TensorParallel::logits_share(int64_t count) const {
  return parallel::row_part({0, count}, vocab_cut_.count, vocab_cut_.index);
}

void TensorParallel::exchange_logits(const TensorView& part, const TensorView& out) {
  comm::Communicator& group = vocab_group();
  const int size = group.size();
  const RowRange mine = logits_share(part.rows());
  const auto columns_of = [&](int rank) {
    return parallel::row_part({0, out.size(1)}, size, rank);
  };
  packed_.resize(size);
  comm::Blocks blocks;
  int64_t sent = 0;
  for (int rank = 0; rank < size; ++rank) {
    const RowRange theirs = parallel::row_part({0, part.rows()}, size, rank);
    blocks.send.push_back(span_of(part.slice_rows(theirs.begin, theirs.size())));
    blocks.receive.push_back(
        span_of(packed_[rank].tensor(DType::fp32, {mine.size(), columns_of(rank).size()})));
    if (rank != group.rank()) sent += static_cast<int64_t>(blocks.send.back().size());
  }
  {
    const ScopedSpan span(recorder_, "all_to_all_logits", Kind::comm, sent);
    group.start_all_to_all(blocks)->wait();
  }
  for (int rank = 0; rank < size; ++rank) {
    const RowRange columns = columns_of(rank);
    const TensorView from = packed_[rank].tensor(DType::fp32, {mine.size(), columns.size()});
    const TensorView to = out.slice_columns(columns.begin, columns.size());
    for (int64_t row = 0; row < mine.size(); ++row)
      std::memcpy(to.row(row), from.row(row), columns.size() * size_of(DType::fp32));
  }
}

std::vector<std::vector<std::byte>> TensorParallel::exchange_rows(std::span<const std::byte> rows,
                                                                  int64_t count) {
  comm::Communicator& group = vocab_group();
  const int64_t row_bytes = static_cast<int64_t>(rows.size()) / count;
  std::vector<std::vector<std::byte>> received(group.size());
  comm::Blocks blocks;
  int64_t sent = 0;
  for (int rank = 0; rank < group.size(); ++rank) {
    const RowRange theirs = parallel::row_part({0, count}, group.size(), rank);
    blocks.send.push_back(rows.subspan(theirs.begin * row_bytes, theirs.size() * row_bytes));
    received[rank].resize(logits_share(count).size() * row_bytes);
    blocks.receive.push_back(received[rank]);
    if (rank != group.rank()) sent += static_cast<int64_t>(blocks.send.back().size());
  }
  const ScopedSpan span(recorder_, "all_to_all_shortlists", Kind::comm, sent);
  group.start_all_to_all(blocks)->wait();
  return received;
}

}  // namespace pecia::model
