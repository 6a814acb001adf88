// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/head_exchange.hpp"

#include "lib/model/attention/attention_steps.hpp"

namespace pecia::attention {

using parallel::HeadRange;
using parallel::RowRange;
using report::Kind;
using report::ScopedSpan;

HeadExchange::HeadExchange(const Compute& compute, DType wire)
    : compute_(compute),
      wire_(wire),
      q_(compute.buffer()),
      k_(compute.buffer()),
      v_(compute.buffer()),
      arrived_q_(compute.buffer()),
      arrived_k_(compute.buffer()),
      arrived_v_(compute.buffer()) {}

/// Copies `width` heads of all rows: [rows, heads, head_dim] each.
void HeadExchange::copy_heads(const TensorView& from, int64_t from_head, const TensorView& to,
                              int64_t to_head, int64_t width) const {
  const auto columns = [&](const TensorView& heads, int64_t first) {
    const TensorView flat = heads.reshape({heads.rows(), heads.row_elements()});
    return flat.slice_columns(first * heads.size(2), width * heads.size(2));
  };
  compute_.copy(columns(from, from_head), columns(to, to_head));
}

/// The heads `wanted` of a tensor that begins with head `first_held`, as a dense block.
TensorView HeadExchange::pack_heads(const TensorView& from, int64_t first_held,
                                    const HeadRange& wanted, device::Buffer& buffer) const {
  const TensorView block =
      buffer.tensor(travels_in(from), {from.rows(), wanted.size(), from.size(2)});
  copy_heads(from, wanted.begin - first_held, block, 0, wanted.size());
  return block;
}

void HeadExchange::begin_pass(comm::Communicator& group, ExchangePlan plan) {
  group_ = &group;
  plan_ = std::move(plan);
  num_rows_ = 0;
  for (const RowRange& range : plan_.rows) num_rows_ += range.size();
  for (auto* buffers : {&packed_k_, &packed_v_, &packed_q_, &packed_out_, &home_})
    if (static_cast<int>(buffers->size()) < group.size()) *buffers = compute_.buffers(group.size());
  queries_.resize(group.size());
  outputs_.resize(group.size());
}

int HeadExchange::at(int distance) const {
  return (group_->rank() + distance + group_->size()) % group_->size();
}

TensorView HeadExchange::rows_of(const TensorView& all, int rank) const {
  return all.slice_rows(plan_.rows[rank].begin, plan_.rows[rank].size());
}

TensorView HeadExchange::arrivals(const TensorView& x, device::Buffer& buffer) const {
  const DType type = travels_in(x);
  return type == x.dtype() ? x : buffer.tensor(type, {x.rows(), x.size(1), x.size(2)});
}

void HeadExchange::take_in(const TensorView& arrived, const TensorView& all, int rank) const {
  if (arrived.dtype() != all.dtype()) compute_.copy(rows_of(arrived, rank), rows_of(all, rank));
}

void HeadExchange::start_keys(const TensorView& k, const TensorView& v) {
  const int size = group_->size(), own = group_->rank();
  const HeadRange &held = plan_.held.kv, &mine = plan_.wanted[own].kv;
  head_dim_ = k.size(2);
  keys_ = {k_.tensor(DType::fp32, {num_rows_, mine.size(), head_dim_}),
           v_.tensor(DType::fp32, {num_rows_, mine.size(), head_dim_})};
  arrived_keys_ = {arrivals(keys_.k, arrived_k_), arrivals(keys_.v, arrived_v_)};
  keys_bytes_ = 0;
  comm::Blocks k_blocks, v_blocks;
  for (comm::Blocks* blocks : {&k_blocks, &v_blocks})
    blocks->send.resize(size), blocks->receive.resize(size);
  {
    const ScopedSpan span(compute_.recorder, "pack_heads", Kind::compute);
    copy_heads(k, mine.begin - held.begin, rows_of(keys_.k, own), 0, mine.size());
    copy_heads(v, mine.begin - held.begin, rows_of(keys_.v, own), 0, mine.size());
    for (int rank = 0; rank < size; ++rank) {
      if (rank == own) continue;
      const HeadRange& theirs = plan_.wanted[rank].kv;
      k_blocks.send[rank] = bytes_of(pack_heads(k, held.begin, theirs, packed_k_[rank]));
      v_blocks.send[rank] = bytes_of(pack_heads(v, held.begin, theirs, packed_v_[rank]));
      k_blocks.receive[rank] = bytes_of(rows_of(arrived_keys_.k, rank));
      v_blocks.receive[rank] = bytes_of(rows_of(arrived_keys_.v, rank));
      keys_bytes_ += static_cast<int64_t>(2 * k_blocks.send[rank].size());
    }
  }
  keys_transfers_ = {compute_.start_all_to_all(*group_, k_blocks),
                     compute_.start_all_to_all(*group_, v_blocks)};
}

HeadExchange::Keys HeadExchange::wait_keys() {
  compute_.wait(keys_transfers_, "all_to_all_heads", keys_bytes_);
  for (int rank = 0; rank < group_->size(); ++rank) {
    if (rank == group_->rank()) continue;
    take_in(arrived_keys_.k, keys_.k, rank);
    take_in(arrived_keys_.v, keys_.v, rank);
  }
  return keys_;
}

TensorView HeadExchange::start_queries(const TensorView& q) {
  const int size = group_->size(), own = group_->rank();
  const HeadRange &held = plan_.held.q, &mine = plan_.wanted[own].q;
  const TensorView all = q_.tensor(q.dtype(), {num_rows_, mine.size(), head_dim_});
  all_queries_ = all, arrived_queries_ = arrivals(all, arrived_q_);
  {
    const ScopedSpan span(compute_.recorder, "pack_heads", Kind::compute);
    copy_heads(q, mine.begin - held.begin, rows_of(all, own), 0, mine.size());
    for (int rank = 0; rank < size; ++rank)
      if (rank != own) pack_heads(q, held.begin, plan_.wanted[rank].q, packed_q_[rank]);
  }
  for (int distance = 1; distance < size; ++distance) {
    const int to = at(-distance), from = at(distance);
    const TensorView packed =
        packed_q_[to].tensor(travels_in(q), {q.rows(), plan_.wanted[to].q.size(), head_dim_});
    queries_[distance] = compute_.start_send_receive(
        *group_, bytes_of(packed), to, bytes_of(rows_of(arrived_queries_, from)), from);
  }
  return all;
}

void HeadExchange::wait_queries(int distance) {
  const int64_t elements =
      plan_.rows[group_->rank()].size() * plan_.wanted[at(-distance)].q.size() * head_dim_;
  compute_.wait(*queries_[distance], "all_to_all_heads",
                elements * size_of(arrived_queries_.dtype()));
  take_in(arrived_queries_, all_queries_, at(distance));
}

TensorView HeadExchange::home(int rank) {
  return home_[rank].tensor(
      wire_, {plan_.rows[group_->rank()].size(), plan_.wanted[rank].q.size(), head_dim_});
}

void HeadExchange::start_outputs(int distance, const TensorView& all) {
  const int to = at(distance), from = at(-distance);
  const TensorView sent = compute_.as_type(rows_of(all, to), wire_, packed_out_[to]);
  outputs_[distance] =
      compute_.start_send_receive(*group_, bytes_of(sent), to, bytes_of(home(from)), from);
}

void HeadExchange::wait_outputs(const TensorView& all, const TensorView& out) {
  const int size = group_->size(), own = group_->rank();
  const TensorView stayed = rows_of(all, own);
  const int64_t elements = (num_rows_ - stayed.rows()) * stayed.row_elements();
  compute_.wait(std::span(outputs_).subspan(1, size - 1), "all_to_all_rows",
                elements * size_of(wire_));
  const ScopedSpan span(compute_.recorder, "unpack_heads", Kind::compute);
  for (int rank = 0; rank < size; ++rank) {
    const HeadRange& theirs = plan_.wanted[rank].q;
    copy_heads(rank == own ? stayed : home(rank), 0, out, theirs.begin - plan_.held.q.begin,
               theirs.size());
  }
}

}  // namespace pecia::attention
