// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/other_heads.hpp"

#include <algorithm>
#include <utility>

#include "lib/base/core/error.hpp"

namespace pecia::attention {

OtherHeads::OtherHeads(const Compute& compute, comm::Communicator& ranks, int kv_holders,
                       std::vector<comm::LinkLevel> links)
    : compute_(compute),
      ranks_(ranks),
      kv_holders_(kv_holders),
      links_(std::move(links)),
      there_(compute.buffer()),
      here_(compute.device, device::Memory::pinned) {
  PECIA_CHECK(
      kv_holders >= 1 && ranks.size() % kv_holders == 0 && std::ssize(links_) == ranks.size(),
      "{} ranks with {} links, of which {} hold the same KV head", ranks.size(), links_.size(),
      kv_holders);
}

/// Every rank of [first, first + count) gets the numbers of each and combines them in their order.
template <typename Combine>
LinkBytes OtherHeads::combine(const char* name, int first, int count, std::span<float> numbers,
                              const Combine& combine) {
  LinkBytes sent{};
  if (count == 1 || numbers.empty()) return sent;
  const auto length = std::ssize(numbers);
  const int64_t bytes = length * size_of(DType::fp32);
  there_.reserve(count * bytes);
  if (here_.bytes() < count * bytes) {
    here_.reserve(count * bytes);
    std::fill_n(here_.as<float>(), count * length, 0.0f);  // a phantom's copies bring nothing
  }
  const int own = ranks_.rank() - first;
  const auto of = [&](const device::Buffer& all, int rank) {
    return std::span(all.as<std::byte>() + rank * bytes, static_cast<size_t>(bytes));
  };
  std::ranges::copy(std::as_bytes(numbers), of(here_, own).data());
  compute_.device.copy(of(there_, own).data(), of(here_, own).data(), bytes, compute_.stream);
  comm::Exchange exchange;
  for (int rank = 0; rank < count; ++rank) {
    if (rank == own) continue;
    exchange.sends.push_back({of(there_, own), first + rank});
    exchange.receives.push_back({of(there_, rank), first + rank});
    sent[static_cast<size_t>(links_[first + rank])] += static_cast<double>(bytes);
  }
  const comm::Operation operation{name, ranks_.next_operation()};
  const report::ScopedSpan span(compute_.recorder, name, report::Kind::comm, (count - 1) * bytes);
  ranks_.start_exchange(exchange, operation)->wait();
  compute_.device.copy(here_.data(), there_.data(), count * bytes, compute_.stream);
  compute_.stream.synchronize();
  std::ranges::copy(std::span(here_.as<float>(), numbers.size()), numbers.begin());
  for (int rank = 1; rank < count; ++rank)
    for (int64_t i = 0; i < length; ++i)
      numbers[i] = combine(numbers[i], here_.as<float>()[rank * length + i]);
  return sent;
}

LinkBytes OtherHeads::largest(std::span<float> numbers) {
  return combine("row_need_of_heads", 0, ranks_.size(), numbers,
                 [](float a, float b) { return std::max(a, b); });
}

LinkBytes OtherHeads::sum_of_kv_head(std::span<float> numbers) {
  return combine("importance_of_heads", ranks_.rank() / kv_holders_ * kv_holders_, kv_holders_,
                 numbers, [](float a, float b) { return a + b; });
}

}  // namespace pecia::attention
