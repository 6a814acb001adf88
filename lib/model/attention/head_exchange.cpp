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
      keys_(compute, wire),
      q_(compute.buffer()),
      arrived_q_(compute.buffer()) {}

void HeadExchange::begin_pass(comm::Communicator& group, ExchangePlan plan) {
  group_ = &group;
  plan_ = std::move(plan);
  keys_.begin_pass(group, plan_);
  num_rows_ = plan_.num_rows();
  for (auto* buffers : {&packed_q_, &packed_out_, &home_})
    if (static_cast<int>(buffers->size()) < group.size()) *buffers = compute_.buffers(group.size());
  queries_.resize(group.size());
  outputs_.resize(group.size());
}

int HeadExchange::at(int distance) const {
  return (group_->rank() + distance + group_->size()) % group_->size();
}

TensorView HeadExchange::start_queries(const TensorView& q) {
  const int size = group_->size(), own = group_->rank();
  const HeadRange &held = plan_.held.q, &mine = plan_.wanted[own].q;
  const DType type = travels_in(q, wire_);
  head_dim_ = q.size(2);
  const TensorView all = q_.tensor(q.dtype(), {num_rows_, mine.size(), head_dim_});
  all_queries_ = all, arrived_queries_ = arrivals(all, type, arrived_q_);
  {
    const ScopedSpan span(compute_.recorder, "pack_heads", Kind::compute);
    copy_heads(compute_, q, mine.begin - held.begin, plan_.rows_of(all, own), 0, mine.size());
    for (int rank = 0; rank < size; ++rank)
      if (rank != own)
        pack_heads(compute_, q, held.begin, plan_.wanted[rank].q, type, packed_q_[rank]);
  }
  for (int distance = 1; distance < size; ++distance) {
    const int to = at(-distance), from = at(distance);
    const TensorView packed =
        packed_q_[to].tensor(type, {q.rows(), plan_.wanted[to].q.size(), head_dim_});
    queries_[distance] = compute_.start_send_receive(
        *group_, bytes_of(packed), to, bytes_of(plan_.rows_of(arrived_queries_, from)), from);
  }
  return all;
}

void HeadExchange::wait_queries(int distance) {
  const int64_t elements =
      plan_.rows[group_->rank()].size() * plan_.wanted[at(-distance)].q.size() * head_dim_;
  compute_.wait(*queries_[distance], "all_to_all_heads",
                elements * size_of(arrived_queries_.dtype()));
  if (arrived_queries_.dtype() != all_queries_.dtype())
    compute_.copy(plan_.rows_of(arrived_queries_, at(distance)),
                  plan_.rows_of(all_queries_, at(distance)));
}

TensorView HeadExchange::home(int rank) {
  return home_[rank].tensor(
      wire_, {plan_.rows[group_->rank()].size(), plan_.wanted[rank].q.size(), value_dim_});
}

void HeadExchange::start_outputs(int distance, const TensorView& all) {
  value_dim_ = all.size(2);
  const int to = at(distance), from = at(-distance);
  const TensorView sent = compute_.as_type(plan_.rows_of(all, to), wire_, packed_out_[to]);
  outputs_[distance] =
      compute_.start_send_receive(*group_, bytes_of(sent), to, bytes_of(home(from)), from);
}

void HeadExchange::wait_outputs(const TensorView& all, const TensorView& out) {
  const int size = group_->size(), own = group_->rank();
  const TensorView stayed = plan_.rows_of(all, own);
  const int64_t elements = (num_rows_ - stayed.rows()) * stayed.row_elements();
  compute_.wait(std::span(outputs_).subspan(1, size - 1), "all_to_all_rows",
                elements * size_of(wire_));
  const ScopedSpan span(compute_.recorder, "unpack_heads", Kind::compute);
  for (int rank = 0; rank < size; ++rank) {
    const HeadRange& theirs = plan_.wanted[rank].q;
    copy_heads(compute_, rank == own ? stayed : home(rank), 0, out,
               theirs.begin - plan_.held.q.begin, theirs.size());
  }
}

}  // namespace pecia::attention
