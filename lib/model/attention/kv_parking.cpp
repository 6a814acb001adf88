// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/kv_parking.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "lib/model/attention/host_tokens.hpp"

namespace pecia::attention {

/// Calls body(layer's keys or values, head, slots of the sequence's tokens here), always in the same
/// order.
template <typename Body>
void KvParking::each_head(parallel::SequenceId sequence, const Body& body) const {
  const auto slots = [&](Retention retention) {
    return retention == Retention::recent ? ledger_.held_recently(sequence).slots
                                          : ledger_.held(sequence).slots;
  };
  const auto all = slots(Retention::all);
  const auto recent = ledger_.recent() == nullptr ? all : slots(Retention::recent);
  const KvShape& shape = cache_.shape();
  for (int64_t layer = 0; layer < shape.layers; ++layer)
    for (const KvCache::Stored& stored : {cache_.k(layer), cache_.v(layer)})
      for (int64_t head = 0; head < shape.num_kv_heads; ++head)
        body(stored, head, cache_.retention(layer) == Retention::recent ? recent : all);
}

namespace {

int64_t parked_tokens(const std::vector<parallel::SlotRange>& slots) {
  int64_t tokens = 0;
  for (const parallel::SlotRange& range : slots) tokens += range.size();
  return tokens;
}

}  // namespace

int64_t KvParking::bytes_of(parallel::SequenceId sequence) const {
  const int64_t of_token = vector_bytes(cache_.shape().dtype, cache_.shape().head_dim);
  int64_t bytes = 0;
  each_head(sequence, [&](const auto&, int64_t, const auto& slots) {
    bytes += parked_tokens(slots) * of_token;
  });
  return bytes;
}

io::File KvParking::make_file(int64_t bytes) const {
  if (places_.folder.empty())
    fail<SystemError>(
        "{} bytes of keys and values have to leave the KV cache, and {} of {} bytes of the host "
        "are "
        "taken: let kv.park be auto, or kv.admission reserve",
        bytes, host_bytes_, places_.host_bytes);
  std::error_code ignored;
  std::filesystem::create_directories(places_.folder, ignored);
  io::File file = io::File::make(places_.folder / fmt::format("parked-{}", ::getpid()), 0600);
  std::filesystem::remove(file.path(), ignored);
  file.reserve(bytes);
  return file;
}

int64_t KvParking::park(parallel::SequenceId sequence) {
  Parked parked;
  parked.bytes = bytes_of(sequence);
  if (parked.bytes <= places_.host_bytes - host_bytes_) {
    parked.memory.resize(parked.bytes);
    host_bytes_ += parked.bytes;
  } else {
    parked.file = make_file(parked.bytes);
  }
  int64_t at = 0;
  const auto write = [&](std::span<const std::byte> bytes) {
    if (parked.file)
      parked.file->write_at(at, bytes);
    else if (!bytes.empty())
      std::memcpy(parked.memory.data() + at, bytes.data(), bytes.size());
    at += std::ssize(bytes);
  };
  std::optional<HostTokens> host;
  each_head(sequence, [&](const KvCache::Stored& stored, int64_t head, const auto& slots) {
    const int64_t tokens = parked_tokens(slots);
    if (!host || std::ssize(host->vector_span(1)) * tokens > host->vectors.bytes())
      host.emplace(compute_, cache_.shape(), tokens);
    copy_tokens(CopyDirection::from_cache, stored, head, *host, slots, compute_);
    write(host->vector_span(tokens));
    write(std::as_bytes(host->scale_span(tokens)));
    compute_.stream.poll();
  });
  PECIA_CHECK(at == parked.bytes, "{} of {} bytes of sequence {} are parked", at, parked.bytes,
              sequence);
  ledger_.park(sequence);
  const int64_t bytes = parked.bytes;
  parked_.emplace(sequence, std::move(parked));
  return bytes;
}

int64_t KvParking::bring_back(parallel::SequenceId sequence, const std::vector<int64_t>& reserved) {
  const auto found = parked_.find(sequence);
  PECIA_CHECK(found != parked_.end(), "sequence {} is not parked", sequence);
  const Parked& parked = found->second;
  ledger_.bring_back(sequence, reserved);
  int64_t at = 0;
  const auto read = [&](std::span<std::byte> bytes) {
    if (parked.file)
      parked.file->read_at(at, bytes);
    else if (!bytes.empty())
      std::memcpy(bytes.data(), parked.memory.data() + at, bytes.size());
    at += std::ssize(bytes);
  };
  std::optional<HostTokens> host;
  each_head(sequence, [&](const KvCache::Stored& stored, int64_t head, const auto& slots) {
    const int64_t tokens = parked_tokens(slots);
    if (!host || std::ssize(host->vector_span(1)) * tokens > host->vectors.bytes())
      host.emplace(compute_, cache_.shape(), tokens);
    read(host->vector_span(tokens));
    read(std::as_writable_bytes(host->scale_span(tokens)));
    copy_tokens(CopyDirection::to_cache, stored, head, *host, slots, compute_);
    compute_.stream.poll();
  });
  PECIA_CHECK(at == parked.bytes, "{} of {} bytes of sequence {} came back", at, parked.bytes,
              sequence);
  const int64_t bytes = parked.bytes;
  forget(sequence);
  return bytes;
}

void KvParking::forget(parallel::SequenceId sequence) {
  const auto found = parked_.find(sequence);
  if (found == parked_.end()) return;
  host_bytes_ -= std::ssize(found->second.memory);
  parked_.erase(found);
}

}  // namespace pecia::attention
