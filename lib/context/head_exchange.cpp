#include "lib/context/head_exchange.hpp"

#include <cstring>

namespace pecia::context {

using parallel::HeadRange;
using parallel::RowRange;
using report::Kind;
using report::ScopedSpan;

namespace {

/// Copies some of the heads of all rows: [rows, heads, head_dim] to and from a dense block
/// [rows, width, head_dim].
void copy_heads(const TensorView& from, int64_t from_head, const TensorView& to, int64_t to_head,
                int64_t width) {
  const int64_t head_bytes = from.size(2) * size_of(from.dtype());
  for (int64_t row = 0; row < from.rows(); ++row)
    std::memcpy(static_cast<std::byte*>(to.row(row)) + to_head * head_bytes,
                static_cast<const std::byte*>(from.row(row)) + from_head * head_bytes,
                width * head_bytes);
}

std::span<std::byte> bytes_of(const TensorView& tensor) {
  return {static_cast<std::byte*>(tensor.data()),
          static_cast<size_t>(tensor.elements() * size_of(tensor.dtype()))};
}

int64_t total_rows(const ExchangePlan& plan) {
  int64_t rows = 0;
  for (const RowRange& range : plan.rows) rows += range.size();
  return rows;
}

}  // namespace

HeadExchange::Heads HeadExchange::to_heads(comm::Communicator& group, const ExchangePlan& plan,
                                           const Heads& mine) {
  const int size = group.size(), rank = group.rank();
  const int64_t head_dim = mine.q.size(2), own_rows = plan.rows[rank].size();
  const int64_t num_rows = total_rows(plan);
  const parallel::HeadShard& wanted = plan.wanted[rank];
  const Heads all{q_.tensor(DType::fp32, {num_rows, wanted.q.size(), head_dim}),
                  k_.tensor(DType::fp32, {num_rows, wanted.kv.size(), head_dim}),
                  v_.tensor(DType::fp32, {num_rows, wanted.kv.size(), head_dim})};

  // What goes to one rank is packed as three blocks one after the other; what comes from one is a
  // run of rows in each result, so it is received in place.
  packed_.resize(size);
  comm::Blocks blocks[3];
  for (auto& each : blocks) each.send.resize(size), each.receive.resize(size);
  int64_t sent = 0;
  {
    const ScopedSpan span(recorder_, "pack_heads", Kind::compute);
    for (int to = 0; to < size; ++to) {
      const parallel::HeadShard& theirs = plan.wanted[to];
      const int64_t row_heads = theirs.q.size() + 2 * theirs.kv.size();
      packed_[to].reserve(own_rows * row_heads * head_dim * size_of(DType::fp32));
      auto* next = packed_[to].as<float>();
      const auto pack = [&](int which, const TensorView& from, const HeadRange& range,
                            int64_t first_held) {
        const TensorView block(static_cast<void*>(next), DType::fp32,
                               {own_rows, range.size(), head_dim});
        copy_heads(from, range.begin - first_held, block, 0, range.size());
        blocks[which].send[to] = bytes_of(block);
        if (to != rank) sent += static_cast<int64_t>(bytes_of(block).size());
        next += block.elements();
      };
      pack(0, mine.q, theirs.q, plan.held.q.begin);
      pack(1, mine.k, theirs.kv, plan.held.kv.begin);
      pack(2, mine.v, theirs.kv, plan.held.kv.begin);
      const auto from_them = [&](const TensorView& tensor) {
        return bytes_of(tensor.slice_rows(plan.rows[to].begin, plan.rows[to].size()));
      };
      blocks[0].receive[to] = from_them(all.q);
      blocks[1].receive[to] = from_them(all.k);
      blocks[2].receive[to] = from_them(all.v);
    }
  }
  const ScopedSpan span(recorder_, "all_to_all_heads", Kind::comm, sent);
  std::unique_ptr<comm::Transfer> transfers[3];
  for (int which = 0; which < 3; ++which) transfers[which] = group.start_all_to_all(blocks[which]);
  for (const auto& transfer : transfers) transfer->wait();
  return all;
}

void HeadExchange::to_rows(comm::Communicator& group, const ExchangePlan& plan,
                           const TensorView& all, const TensorView& out) {
  const int size = group.size(), rank = group.rank();
  const int64_t head_dim = all.size(2), own_rows = plan.rows[rank].size();
  packed_.resize(size);
  comm::Blocks blocks;
  int64_t sent = 0;
  for (int other = 0; other < size; ++other) {
    blocks.send.emplace_back(
        bytes_of(all.slice_rows(plan.rows[other].begin, plan.rows[other].size())));
    if (other != rank) sent += static_cast<int64_t>(blocks.send.back().size());
    blocks.receive.emplace_back(bytes_of(
        packed_[other].tensor(DType::fp32, {own_rows, plan.wanted[other].q.size(), head_dim})));
  }
  {
    const ScopedSpan span(recorder_, "all_to_all_rows", Kind::comm, sent);
    group.start_all_to_all(blocks)->wait();
  }
  const ScopedSpan span(recorder_, "unpack_heads", Kind::compute);
  for (int other = 0; other < size; ++other) {
    const HeadRange& theirs = plan.wanted[other].q;
    const TensorView block =
        packed_[other].tensor(DType::fp32, {own_rows, theirs.size(), head_dim});
    copy_heads(block, 0, out, theirs.begin - plan.held.q.begin, theirs.size());
  }
}

}  // namespace pecia::context
