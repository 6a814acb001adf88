// SPDX-License-Identifier: Apache-2.0
#include "lib/model/weights/tensor_parallel.hpp"

#include <utility>

#include "lib/ranks/comm/server_map.hpp"
#include "lib/ranks/parallel/heads.hpp"

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

/// Sums of equal bits on every layout have the order of one server.
std::unique_ptr<comm::Collectives> make_collectives(comm::Communicator& group,
                                                    const comm::RankLabels& labels,
                                                    kernels::RowInvariant row_invariant) {
  return row_invariant == kernels::RowInvariant::yes
             ? group.make_collectives(comm::labels_as_flat(labels), comm::SumOrder::tree)
             : group.make_collectives(labels, comm::SumOrder::any);
}

}  // namespace

TensorParallel::TensorParallel(const attention::ReplicaGroups& groups,
                               const attention::Compute& compute,
                               kernels::RowInvariant row_invariant)
    : groups_(groups),
      compute_(compute),
      tp_(make_collectives(*groups.tp, groups.tp_labels, row_invariant)),
      block_(make_collectives(*groups.block, groups.block_labels, row_invariant)),
      outputs_(compute.buffer()),
      partial_(compute.buffer()),
      sums_on_wire_(compute.buffer()),
      embedded_(compute.buffer()),
      rows_on_wire_(compute.buffer()),
      packed_(compute.buffers(groups.block->size())) {}

void TensorParallel::begin_pass(Sharding sharding, int64_t num_rows) {
  const parallel::BlockPlace& place = groups_.place;
  sharding_ = sharding;
  cut_ = weight_cut(sharding, place);
  vocab_cut_ = sharding == Sharding::gathered ? weight_cut(Sharding::base, place) : cut_;
  rows_ = sharded_rows(sharding, place, num_rows);
  sums_.resize(rows_.blocks.size());
  gathers_.resize(rows_.blocks.size());
  vocab_rows_.clear();
  if (!rows_differ()) {
    vocab_rows_.push_back(rows_);
    return;
  }
  for (int tp_index = 0; tp_index < place.tp; ++tp_index)
    vocab_rows_.push_back(
        sharded_rows(sharding, {place.sp, place.tp, place.sp_index, tp_index}, num_rows));
}

void TensorParallel::go_on_with(std::span<const int64_t> some) {
  for (const UnderWay& sum : sums_) PECIA_CHECK(!sum.transfer && !sum.sum, "a sum is under way");
  for (const UnderWay& gather : gathers_) PECIA_CHECK(!gather.transfer, "a gather is under way");
  rows_ = rows_.part_of(some);
  for (parallel::ShardedRows& rows : vocab_rows_) rows = rows.part_of(some);
}

bool TensorParallel::rows_differ() const {
  return sharding_ == Sharding::sp_tp || sharding_ == Sharding::gathered;
}

comm::Communicator& TensorParallel::vocab_group() const {
  return sharding_ == Sharding::shift ? *groups_.block : *groups_.tp;
}

TensorView TensorParallel::block_of(const TensorView& all, int block) const {
  return all.slice_rows(rows_.blocks[block].begin - rows_.linear.begin, rows_.blocks[block].size());
}

TensorView TensorParallel::own_of(const TensorView& own, int block) const {
  int64_t before = 0;
  for (int earlier = 0; earlier < block; ++earlier) before += rows_.own[earlier].size();
  return own.slice_rows(before, rows_.own[block].size());
}

int TensorParallel::products_before_sum() const {
  return gathers() ? num_blocks() / 2 : num_blocks() - 1;
}

void TensorParallel::add_product(int block, const TensorView& hidden, const Multiply& multiply,
                                 const Change& change, DType narrowest) {
  if (cut_.count == 1 && !change) return multiply(hidden, Accumulate::yes);
  const DType wire = cut_.count > 1 ? groups_.wire : DType::fp32;
  const auto rows_in = [&](device::Buffer& buffer, DType type) {
    return block_of(buffer.tensor(type, {rows_.linear.size(), hidden.row_elements()}), block);
  };
  const auto own_of_block = [&](const TensorView& of_block) {
    return of_block.slice_rows(rows_.own[block].begin - rows_.blocks[block].begin,
                               rows_.own[block].size());
  };
  const bool rounds = wire != DType::fp32, multiplies_wide = rounds && narrowest != wire;
  TensorView wide, sum;
  if (!rounds || multiplies_wide || change) wide = rows_in(partial_, DType::fp32);
  sum = rounds ? rows_in(sums_on_wire_, wire) : wide;
  multiply(multiplies_wide ? wide : sum, Accumulate::no);
  if (multiplies_wide) round(wide, sum);
  const TensorView own = own_of_block(sum);
  if (cut_.count == 1)
    sums_[block] = {};
  else if (rows_differ())
    start_scatter(block, sum, own);
  else
    start_sum(block, sum);
  sums_[block].sum = own;
  sums_[block].hidden = hidden;
  sums_[block].change = change;
  if (change) sums_[block].wide = own_of_block(wide);
}

void TensorParallel::round(const TensorView& values, const TensorView& to) const {
  const ScopedSpan span(compute_.recorder, "cast", Kind::compute, bytes_of(values) + bytes_of(to));
  compute_.copy(values, to);
}

/// Ranks with the same rows look these up, and others all rows of the group. Sums that are rounded
/// are added to hidden states of zero by wait_sum.
void TensorParallel::embed(const TensorView& hidden, const LookUp& look_up) {
  if (vocab_cut_.count == 1) return look_up(rows_.own, hidden);
  const bool differ = rows_differ(), rounds = groups_.wire != DType::fp32;
  const int64_t width = hidden.row_elements();
  int64_t total = 0;
  for (const parallel::ShardedRows& rows : vocab_rows_) total += rows.num_own();
  const TensorView all = differ ? partial_.tensor(DType::fp32, {total, width}) : hidden;
  const TensorView sent = rounds ? sums_on_wire_.tensor(groups_.wire, {total, width}) : all;
  const TensorView sums = !rounds  ? hidden
                          : differ ? embedded_.tensor(groups_.wire, {hidden.rows(), width})
                                   : sent;
  int64_t begin = 0;
  for (int block = 0; block < num_blocks(); ++block) {
    Rows ranges;
    int64_t count = 0;
    for (const parallel::ShardedRows& rows : vocab_rows_) {
      ranges.push_back(rows.own[block]);
      count += ranges.back().size();
    }
    const TensorView part = all.slice_rows(begin, count);
    const TensorView part_sent = sent.slice_rows(begin, count);
    const TensorView own = own_of(hidden, block), sum = own_of(sums, block);
    look_up(ranges, part);
    if (rounds) {
      round(part, part_sent);
      compute_.device.zero(own.data(), bytes_of(own), compute_.stream);
    }
    if (differ)
      start_scatter(block, part_sent, sum);
    else
      start_sum(block, part_sent);
    if (rounds) sums_[block].sum = sum, sums_[block].hidden = own;
    begin += count;
  }
}

void TensorParallel::start_sum(int block, const TensorView& partial) {
  sums_[block] = all_reduce(partial);
}

void TensorParallel::start_sum_of_parts(const TensorView& parts) {
  if (cut_.count == 1) return;
  parts_ = all_reduce(parts);
}

TensorParallel::UnderWay TensorParallel::all_reduce(const TensorView& values) {
  comm::Collectives& group = weight_group();
  const bool timed_apart = compute_.recorder.keeps_ops();
  return {timed_apart ? group.start_all_reduce(values) : group.start_all_reduce_in_step(values),
          "all_reduce", bytes_of(values)};
}

void TensorParallel::start_scatter(int block, const TensorView& partial, const TensorView& own) {
  std::vector<int64_t> counts;
  for (const parallel::ShardedRows& rows : vocab_rows_)
    counts.push_back(rows.own[block].size() * own.row_elements());
  sums_[block] = {tp_->start_reduce_scatter(partial, counts, own), "reduce_scatter",
                  bytes_of(partial)};
}

void TensorParallel::start_gather(int block, const TensorView& all) {
  if (!gathers()) return;
  const bool rounds = all.dtype() == DType::fp32 && groups_.wire != DType::fp32;
  const TensorView sent =
      rounds ? rows_on_wire_.tensor(groups_.wire, {all.rows(), all.row_elements()}) : all;
  std::vector<std::span<std::byte>> blocks;
  for (const parallel::ShardedRows& rows : vocab_rows_) {
    const auto of_rank = [&](const TensorView& of) {
      return of.slice_rows(rows.own[block].begin - rows_.linear.begin, rows.own[block].size());
    };
    if (rounds && std::ssize(blocks) == groups_.tp->rank()) round(of_rank(all), of_rank(sent));
    blocks.push_back(span_of(of_rank(sent)));
  }
  const auto own_bytes = static_cast<int64_t>(blocks[groups_.tp->rank()].size());
  gathers_[block] = {tp_->start_all_gather(std::move(blocks)), "all_gather", own_bytes};
  if (rounds)
    gathers_[block].sum = block_of(sent, block), gathers_[block].wide = block_of(all, block);
}

void TensorParallel::wait_sum(int block) {
  UnderWay& one = sums_[block];
  wait(one);
  TensorView sum = std::exchange(one.sum, {});
  if (!sum) return;
  if (one.change && sum.dtype() != DType::fp32) {
    compute_.copy(sum, one.wide);
    sum = one.wide;
  }
  if (one.change.apply) one.change.apply(sum);
  const ScopedSpan span(compute_.recorder, "add_sum", Kind::compute, bytes_of(sum));
  compute_.backend.add({sum, one.hidden, one.change.scale}, compute_.stream);
}

void TensorParallel::wait_gather(int block) {
  UnderWay& one = gathers_[block];
  wait(one);
  if (const TensorView rounded = std::exchange(one.sum, {})) compute_.copy(rounded, one.wide);
}

void TensorParallel::wait(UnderWay& one) {
  const auto transfer = std::exchange(one.transfer, nullptr);
  if (transfer != nullptr) compute_.wait(*transfer, one.name, one.bytes);
}

void TensorParallel::progress() {
  tp_->progress();
  block_->progress();
}

TensorView TensorParallel::gather_outputs(const TensorView& own,
                                          const std::vector<int64_t>& counts) {
  if (!rows_differ() || groups_.tp->size() == 1) return own;
  int64_t total = 0;
  for (const int64_t count : counts) total += count;
  const TensorView all = outputs_.tensor(DType::fp32, {total, own.size(1)});
  std::vector<std::span<std::byte>> blocks;
  int64_t begin = 0;
  for (int rank = 0; rank < groups_.tp->size(); ++rank) {
    const TensorView theirs = all.slice_rows(begin, counts[rank]);
    if (rank == groups_.tp->rank()) compute_.copy(own, theirs);
    blocks.push_back(span_of(theirs));
    begin += counts[rank];
  }
  const ScopedSpan span(compute_.recorder, "all_gather", Kind::comm, bytes_of(own));
  tp_->start_all_gather(blocks)->wait();
  return all;
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
    const ScopedSpan span(compute_.recorder, "all_to_all_logits", Kind::comm, sent);
    group.start_all_to_all(blocks)->wait();
  }
  for (int rank = 0; rank < size; ++rank) {
    const RowRange columns = columns_of(rank);
    const TensorView from = packed_[rank].tensor(DType::fp32, {mine.size(), columns.size()});
    const TensorView to = out.slice_columns(columns.begin, columns.size());
    compute_.copy(from, to);
  }
}

std::vector<std::vector<std::byte>> TensorParallel::exchange_rows(std::span<const std::byte> rows,
                                                                  int64_t count) {
  comm::Communicator& group = vocab_group().on_host();
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
  const ScopedSpan span(compute_.recorder, "all_to_all_shortlists", Kind::comm, sent);
  group.start_all_to_all(blocks)->wait();
  return received;
}

}  // namespace pecia::model
