// SPDX-License-Identifier: Apache-2.0
#include "lib/model/layers/expert_exchange.hpp"

#include <algorithm>
#include <numeric>

#include "lib/base/core/error.hpp"
#include "lib/base/core/random.hpp"

namespace pecia::model {

using kernels::Accumulate;
using parallel::RowRange;
using report::Kind;
using report::ScopedSpan;

namespace {

/// Grows `choices` by random ones. Copies overwrite them, but a phantom's copies bring nothing: its
/// rows then choose at random, the same on every rank.
void grow(std::vector<parallel::ExpertChoice>& choices, int64_t count, int64_t experts) {
  while (std::ssize(choices) < count) {
    const uint64_t number = mix(0, choices.size());
    choices.push_back({static_cast<int32_t>(number % static_cast<uint64_t>(experts)), 0});
  }
}

int64_t sum_of(std::span<const int64_t> values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

}  // namespace

ExpertExchange::ExpertExchange(const attention::Compute& compute, DType wire)
    : compute_(compute),
      wire_(wire),
      leaving_(compute.buffer()),
      arrived_(compute.buffer()),
      chosen_(compute.buffer()),
      weights_(compute.buffer()),
      returned_(compute.buffer()),
      rounded_(compute.buffer()),
      widened_(compute.buffer()) {}

void ExpertExchange::begin_pass(comm::Communicator& group, std::vector<RowRange> held) {
  PECIA_CHECK(std::ssize(held) == group.size(), "experts of {} ranks in a group of {}", held.size(),
              group.size());
  group_ = &group;
  held_ = std::move(held);
  for (std::vector<Indices>* rows : {&leaves_, &comes_}) rows->resize(held_.size());
  for (std::vector<int64_t>* sizes : {&num_leaving_, &num_coming_}) sizes->resize(held_.size());
}

ExpertExchange::Choices ExpertExchange::choices_of(int rank) {
  const int64_t begin = begins_[rank], end = begins_[rank + 1];
  return std::span(choices_).subspan(begin * per_row_, (end - begin) * per_row_);
}

void ExpertExchange::gather_choices(const TensorView& chosen, const TensorView& weights,
                                    std::span<const int64_t> counts) {
  const int size = group_->size(), own_rank = group_->rank();
  per_row_ = chosen.size(1);
  begins_ = {0};
  for (const int64_t count : counts) begins_.push_back(begins_.back() + count);
  grow(choices_, begins_.back() * per_row_, held_.back().end);
  const Choices own = choices_of(own_rank);
  PECIA_CHECK(std::ssize(own) == chosen.elements(), "{} choices for {} rows", chosen.elements(),
              counts[own_rank]);
  compute_.stream.synchronize();  // nothing reads the arrays of the rows before
  chosen_on_host_.clear(), weights_on_host_.clear();
  for (const auto& [expert, weight] : own)
    chosen_on_host_.push_back(expert), weights_on_host_.push_back(weight);
  const auto bytes = static_cast<int64_t>(own.size() * sizeof(int32_t));
  compute_.device.copy(chosen_on_host_.data(), chosen.data(), bytes, compute_.stream);
  compute_.device.copy(weights_on_host_.data(), weights.data(), bytes, compute_.stream);
  compute_.stream.synchronize();
  for (size_t i = 0; i < own.size(); ++i) own[i] = {chosen_on_host_[i], weights_on_host_[i]};

  comm::Blocks blocks;
  blocks.send.resize(size), blocks.receive.resize(size);
  for (int rank = 0; rank < size; ++rank)
    if (rank != own_rank) {
      blocks.send[rank] = std::as_bytes(own);
      blocks.receive[rank] = std::as_writable_bytes(choices_of(rank));
    }
  const ScopedSpan span(compute_.recorder, "all_to_all_choices", Kind::comm,
                        static_cast<int64_t>(own.size_bytes()) * (size - 1));
  group_->on_host().start_all_to_all(blocks)->wait();
}

void ExpertExchange::exchange(const char* name, const TensorView& from,
                              std::span<const int64_t> sent, const TensorView& to,
                              std::span<const int64_t> received) {
  const auto bytes_of = [](const TensorView& rows) {
    const auto bytes = static_cast<size_t>(rows.elements() * size_of(rows.dtype()));
    return std::span(static_cast<std::byte*>(rows.data()), bytes);
  };
  comm::Blocks blocks;
  int64_t begin = 0, end = 0, bytes = 0;
  for (int rank = 0; rank < group_->size(); ++rank) {
    blocks.send.push_back(bytes_of(from.slice_rows(begin, sent[rank])));
    blocks.receive.push_back(bytes_of(to.slice_rows(end, received[rank])));
    begin += sent[rank], end += received[rank];
    if (rank != group_->rank()) bytes += static_cast<int64_t>(blocks.send.back().size());
  }
  const ScopedSpan span(compute_.recorder, name, Kind::comm, bytes);
  group_->start_all_to_all(blocks)->wait();
}

ExpertExchange::Arrived ExpertExchange::send(const TensorView& rows, const TensorView& chosen,
                                             const TensorView& weights,
                                             std::span<const int64_t> counts) {
  gather_choices(chosen, weights, counts);
  const int own_rank = group_->rank();
  which_.clear();
  for (int rank = 0; rank < group_->size(); ++rank) {
    leaves_[rank] = rows_taking(choices_of(own_rank), per_row_, held_[rank]);
    comes_[rank] = rows_taking(choices_of(rank), per_row_, held_[own_rank]);
    num_leaving_[rank] = std::ssize(leaves_[rank]), num_coming_[rank] = std::ssize(comes_[rank]);
    which_.insert(which_.end(), leaves_[rank].begin(), leaves_[rank].end());
  }
  const int64_t width = rows.size(1);
  const DType type = rows.dtype() == DType::fp32 ? wire_ : rows.dtype();
  const TensorView packed = leaving_.tensor(rows.dtype(), {sum_of(num_leaving_), width});
  const TensorView arrived = arrived_.tensor(type, {sum_of(num_coming_), width});
  {
    const ScopedSpan span(compute_.recorder, "pack_rows", Kind::compute);
    compute_.backend.sum_rows({.x = rows, .which = which_, .out = packed}, compute_.stream);
  }
  exchange("all_to_all_rows", compute_.as_type(packed, type, rounded_), num_leaving_, arrived,
           num_coming_);
  return with_choices(compute_.as_type(arrived, rows.dtype(), widened_));
}

/// The choices of the rows that have come, where the experts read them.
ExpertExchange::Arrived ExpertExchange::with_choices(const TensorView& rows) {
  chosen_on_host_.clear(), weights_on_host_.clear();
  const RowRange& held = held_[group_->rank()];
  Arrived arrived{rows, chosen_.tensor(DType::int32, {rows.rows(), per_row_}),
                  weights_.tensor(DType::fp32, {rows.rows(), per_row_})};
  for (int rank = 0; rank < group_->size(); ++rank)
    for (const int32_t row : comes_[rank])
      for (const auto& [expert, weight] : choices_of(rank).subspan(row * per_row_, per_row_)) {
        chosen_on_host_.push_back(expert), weights_on_host_.push_back(weight);
        if (held.begin <= expert && expert < held.end) ++arrived.pairs;
      }
  const auto bytes = static_cast<int64_t>(chosen_on_host_.size() * sizeof(int32_t));
  compute_.device.copy(arrived.chosen.data(), chosen_on_host_.data(), bytes, compute_.stream);
  compute_.device.copy(arrived.weights.data(), weights_on_host_.data(), bytes, compute_.stream);
  return arrived;
}

void ExpertExchange::bring_back(const TensorView& sums, const TensorView& to,
                                Accumulate accumulate) {
  const int64_t size = group_->size();
  const TensorView coming = returned_.tensor(wire_, {sum_of(num_leaving_), sums.size(1)});
  exchange("all_to_all_sums", compute_.as_type(sums, wire_, rounded_), num_coming_, coming,
           num_leaving_);
  const TensorView returned = compute_.as_type(coming, DType::fp32, widened_);
  which_.assign(to.rows() * size, -1);
  int32_t next = 0;
  for (int64_t rank = 0; rank < size; ++rank)
    for (const int32_t row : leaves_[rank]) which_[row * size + rank] = next++;
  const ScopedSpan span(compute_.recorder, "add_experts", Kind::compute);
  compute_.backend.sum_rows({.x = returned, .which = which_, .out = to, .accumulate = accumulate},
                            compute_.stream);
}

}  // namespace pecia::model
