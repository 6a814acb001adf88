// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/kv_exchange.hpp"

#include "lib/model/attention/attention_steps.hpp"

namespace pecia::attention {

using parallel::HeadRange;
using report::Kind;
using report::ScopedSpan;

KvExchange::KvExchange(const Compute& compute, DType wire)
    : compute_(compute),
      wire_(wire),
      heads_{{{compute.buffer(), compute.buffer(), compute.buffer()},
              {compute.buffer(), compute.buffer(), compute.buffer()}}} {}

void KvExchange::begin_pass(comm::Communicator& group, const ExchangePlan& plan) {
  group_ = &group;
  plan_ = &plan;
  const int size = group.size(), own = group.rank();
  for (Heads& heads : heads_)
    if (static_cast<int>(heads.packed.size()) < size) heads.packed = compute_.buffers(size);
  batches_.clear();
  first_relayed_.assign(size, -1);
  relayed_rows_ = 0;
  for (int relay = 0; relay < size && !plan.routes.are_direct(); ++relay) {
    Batch batch{relay, {relayed_rows_, relayed_rows_}};
    for (const int from : plan.routes.relayed_by(relay)) {
      if (relay != own && plan.routes.last_hop(from, own) != relay) continue;
      first_relayed_[from] = batch.rows.end;
      batch.rows.end += plan.rows[from].size();
    }
    relayed_rows_ = batch.rows.end;
    if (batch.rows.size() > 0) batches_.push_back(batch);
  }
}

TensorView KvExchange::arrival_of(const Heads& heads, int rank) const {
  if (first_relayed_[rank] < 0) return plan_->rows_of(heads.arrived, rank);
  return heads.relayed.slice_rows(first_relayed_[rank], plan_->rows[rank].size());
}

/// Packs the heads of the own rows for the ranks that they go to at once.
comm::Blocks KvExchange::blocks_from_sources(Heads& heads, const TensorView& x) {
  const int size = group_->size(), own = group_->rank();
  const HeadRange &held = plan_->held.kv, &mine = plan_->wanted[own].kv;
  const DType type = travels_in(x, wire_);
  heads.all = heads.all_memory.tensor(DType::fp32, {plan_->num_rows(), mine.size(), x.size(2)});
  heads.arrived = arrivals(heads.all, type, heads.arrived_memory);
  heads.relayed = heads.relayed_memory.tensor(type, {relayed_rows_, mine.size(), x.size(2)});
  copy_heads(compute_, x, mine.begin - held.begin, plan_->rows_of(heads.all, own), 0, mine.size());
  comm::Blocks blocks;
  blocks.send.resize(size), blocks.receive.resize(size);
  for (int rank = 0; rank < size; ++rank) {
    if (rank == own) continue;
    if (plan_->routes.last_hop(own, rank) == own) {
      blocks.send[rank] = bytes_of(
          pack_heads(compute_, x, held.begin, plan_->wanted[rank].kv, type, heads.packed[rank]));
      bytes_ += std::ssize(blocks.send[rank]);
    }
    if (plan_->routes.last_hop(rank, own) == rank)
      blocks.receive[rank] = bytes_of(arrival_of(heads, rank));
  }
  return blocks;
}

/// To each rank of the neighbourhood go all rows that this rank passes on.
comm::Blocks KvExchange::blocks_from_relays(const Heads& heads) {
  const int size = group_->size(), own = group_->rank();
  comm::Blocks blocks;
  blocks.send.resize(size), blocks.receive.resize(size);
  for (const auto& [relay, rows] : batches_) {
    const std::span<std::byte> bytes = bytes_of(heads.relayed.slice_rows(rows.begin, rows.size()));
    if (relay != own) {
      blocks.receive[relay] = bytes;
      continue;
    }
    const int any = plan_->routes.relayed_by(own).front();
    for (int rank = 0; rank < size; ++rank)
      if (plan_->routes.last_hop(any, rank) == own && rank != own) {
        blocks.send[rank] = bytes;
        bytes_onward_ += std::ssize(bytes);
      }
  }
  return blocks;
}

void KvExchange::start(const TensorView& k, const TensorView& v) {
  bytes_ = bytes_onward_ = 0;
  sides_ = v ? 2 : 1;
  std::array<comm::Blocks, 2> blocks;
  {
    const ScopedSpan span(compute_.recorder, "pack_heads", Kind::compute);
    blocks[0] = blocks_from_sources(heads_[0], k);
    if (v) blocks[1] = blocks_from_sources(heads_[1], v);
  }
  for (size_t i = 0; i < sides_; ++i)
    heads_[i].first = compute_.start_all_to_all(*group_, blocks[i]);
  // On a stream, transfers of a group follow each other.
  if (!plan_->routes.are_direct() && group_->on_stream()) pass_on();
}

void KvExchange::pass_on() {
  for (Heads& heads : sides())
    heads.onward = compute_.start_all_to_all(*group_, blocks_from_relays(heads));
}

KvExchange::Keys KvExchange::wait() {
  const auto wait_for = [&](std::unique_ptr<comm::Transfer> Heads::*transfer, int64_t bytes) {
    std::vector<std::unique_ptr<comm::Transfer>> transfers;
    for (Heads& heads : sides()) transfers.push_back(std::move(heads.*transfer));
    compute_.wait(transfers, "all_to_all_heads", bytes);
  };
  wait_for(&Heads::first, bytes_);
  if (!plan_->routes.are_direct()) {
    if (heads_[0].onward == nullptr) pass_on();
    wait_for(&Heads::onward, bytes_onward_);
  }
  for (const Heads& heads : sides())
    for (int rank = 0; rank < group_->size(); ++rank) {
      const TensorView arrived = arrival_of(heads, rank);
      const bool in_place = arrived.dtype() == heads.all.dtype() && first_relayed_[rank] < 0;
      if (rank != group_->rank() && !in_place)
        compute_.copy(arrived, plan_->rows_of(heads.all, rank));
    }
  return {heads_[0].all, sides_ == 2 ? heads_[1].all : TensorView()};
}

}  // namespace pecia::attention
