// SPDX-License-Identifier: Apache-2.0
#include "lib/model/recurrence/channel_exchange.hpp"

#include <utility>

namespace pecia::recurrence {

using parallel::RowRange;
using report::Kind;
using report::ScopedSpan;

ChannelExchange::ChannelExchange(const attention::Compute& compute, DType wire)
    : compute_(compute), wire_(wire), all_(compute.buffer()), arrived_(compute.buffer()) {}

void ChannelExchange::begin_pass(comm::Communicator& group, std::vector<RowRange> rows,
                                 std::vector<ChannelPart> parts) {
  group_ = &group;
  rows_ = std::move(rows), parts_ = std::move(parts);
  for (auto* buffers : {&packed_, &home_})
    if (static_cast<int>(buffers->size()) < group.size()) *buffers = compute_.buffers(group.size());
}

int64_t ChannelExchange::width(int rank) const {
  const ChannelPart& part = parts_[rank];
  return 2 * part.keys.size() + part.values.size() + (has_b_ ? 2 : 1) * part.heads.size();
}

/// Rows of a rank's part, [rows, width], as they travel.
Projected ChannelExchange::columns(const TensorView& rows, int rank) const {
  const ChannelPart& part = parts_[rank];
  int64_t first = 0;
  const auto next = [&](int64_t count) {
    return rows.slice_columns(std::exchange(first, first + count), count);
  };
  Projected found;
  found.q = next(part.keys.size()), found.k = next(part.keys.size());
  found.v = next(part.values.size()), found.a = next(part.heads.size());
  if (has_b_) found.b = next(part.heads.size());
  return found;
}

void ChannelExchange::copy_part(const Projected& own, int rank, const TensorView& to) const {
  const ChannelPart& part = parts_[rank];
  const Projected there = columns(to, rank);
  const auto copy = [&](const TensorView& from, RowRange range, const TensorView& into) {
    compute_.copy(from.slice_columns(range.begin, range.size()), into);
  };
  copy(own.q, part.keys, there.q), copy(own.k, part.keys, there.k);
  copy(own.v, part.values, there.v), copy(own.a, part.heads, there.a);
  if (has_b_) copy(own.b, part.heads, there.b);
}

Projected ChannelExchange::spread(const Projected& own) {
  const int self = group_->rank();
  has_b_ = static_cast<bool>(own.b);
  const int64_t num_rows = rows_.back().end;
  const TensorView all = all_.tensor(DType::fp32, {num_rows, width(self)});
  const TensorView arrived =
      wire_ == DType::fp32 ? all : arrived_.tensor(wire_, {num_rows, width(self)});
  const auto part_of = [&](const TensorView& rows, int rank) {
    return rows.slice_rows(rows_[rank].begin, rows_[rank].size());
  };
  comm::Blocks blocks;
  int64_t sent = 0;
  {
    const ScopedSpan span(compute_.recorder, "pack_channels", Kind::compute);
    copy_part(own, self, part_of(all, self));
    for (int rank = 0; rank < group_->size(); ++rank) {
      const bool stays = rank == self;
      const TensorView packed =
          packed_[rank].tensor(wire_, {stays ? 0 : own.q.rows(), width(rank)});
      if (!stays) copy_part(own, rank, packed);
      blocks.send.push_back(attention::bytes_of(packed));
      blocks.receive.push_back(attention::bytes_of(part_of(arrived, rank)));
      if (stays) blocks.receive.back() = {};
      sent += static_cast<int64_t>(blocks.send.back().size());
    }
  }
  compute_.wait(*compute_.start_all_to_all(*group_, blocks), "all_to_all_channels", sent);
  if (wire_ != DType::fp32)
    for (int rank = 0; rank < group_->size(); ++rank)
      if (rank != self) compute_.copy(part_of(arrived, rank), part_of(all, rank));
  return columns(all, self);
}

void ChannelExchange::bring_home(const TensorView& all, const TensorView& out) {
  const int self = group_->rank();
  comm::Blocks blocks;
  std::vector<TensorView> home;
  int64_t sent = 0;
  for (int rank = 0; rank < group_->size(); ++rank) {
    const bool stays = rank == self;
    const TensorView rows = all.slice_rows(rows_[rank].begin, rows_[rank].size());
    home.push_back(home_[rank].tensor(wire_, {stays ? 0 : out.rows(), parts_[rank].values.size()}));
    blocks.send.push_back(stays
                              ? std::span<std::byte>()
                              : attention::bytes_of(compute_.as_type(rows, wire_, packed_[rank])));
    blocks.receive.push_back(attention::bytes_of(home.back()));
    sent += static_cast<int64_t>(blocks.send.back().size());
  }
  compute_.wait(*compute_.start_all_to_all(*group_, blocks), "all_to_all_rows", sent);
  const ScopedSpan span(compute_.recorder, "unpack_channels", Kind::compute);
  for (int rank = 0; rank < group_->size(); ++rank) {
    const TensorView to = out.slice_columns(parts_[rank].values.begin, parts_[rank].values.size());
    compute_.copy(rank == self ? all.slice_rows(rows_[rank].begin, rows_[rank].size()) : home[rank],
                  to);
  }
}

}  // namespace pecia::recurrence
