// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/other_heads.hpp"

#include <numeric>
#include <utility>

#include "lib/base/core/error.hpp"
#include "lib/model/attention/attention_steps.hpp"

namespace pecia::attention {

OtherHeads::OtherHeads(const Compute& compute, comm::Communicator& ranks, int kv_holders,
                       std::vector<comm::LinkLevel> links)
    : compute_(compute),
      ranks_(ranks),
      kv_holders_(kv_holders),
      links_(std::move(links)),
      in_order_(ranks.size()),
      of_ranks_(compute.buffer()) {
  PECIA_CHECK(
      kv_holders >= 1 && ranks.size() % kv_holders == 0 && std::ssize(links_) == ranks.size(),
      "{} ranks with {} links, of which {} hold the same KV head", ranks.size(), links_.size(),
      kv_holders);
  std::iota(in_order_.begin(), in_order_.end(), 0);
}

/// Every rank of [first, first + count) gets the numbers of each and combines them in their order.
LinkBytes OtherHeads::combine(const char* name, int first, int count, const TensorView& numbers,
                              kernels::CombineRows how) {
  LinkBytes sent{};
  const int64_t length = numbers.rows();
  if (count == 1 || length == 0) return sent;
  const TensorView all = of_ranks_.tensor(DType::fp32, {count, length});
  const auto of = [&](int rank) { return bytes_of(all.slice_rows(rank, 1)); };
  const auto bytes = static_cast<int64_t>(of(0).size());
  const int own = ranks_.rank() - first;
  compute_.copy(numbers.reshape({1, length}), all.slice_rows(own, 1));
  comm::Exchange exchange;
  for (int rank = 0; rank < count; ++rank) {
    if (rank == own) continue;
    exchange.sends.push_back({of(own), first + rank});
    exchange.receives.push_back({of(rank), first + rank});
    sent[static_cast<size_t>(links_[first + rank])] += static_cast<double>(bytes);
  }
  const comm::Operation operation{name, ranks_.next_operation()};
  {
    const report::ScopedSpan span(compute_.recorder, name, report::Kind::comm, (count - 1) * bytes);
    ranks_.start_exchange(exchange, operation)->wait();
  }
  const std::span<const int32_t> in_order(in_order_);
  compute_.backend.sum_rows({.x = all,
                             .which = in_order.first(static_cast<size_t>(count)),
                             .out = numbers.reshape({1, length}),
                             .combine = how},
                            compute_.stream);
  return sent;
}

LinkBytes OtherHeads::largest(const TensorView& numbers) {
  return combine("row_need_of_heads", 0, ranks_.size(), numbers, kernels::CombineRows::largest);
}

LinkBytes OtherHeads::sum_of_kv_head(const TensorView& numbers) {
  return combine("importance_of_heads", ranks_.rank() / kv_holders_ * kv_holders_, kv_holders_,
                 numbers, kernels::CombineRows::sum);
}

}  // namespace pecia::attention
