// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/kv_parking.hpp"

#include <algorithm>
#include <cstring>
#include <random>

namespace pecia::attention {

KvParking::Slots KvParking::slots_of(parallel::SequenceId sequence) const {
  return {ledger_.held(sequence).slots, ledger_.recent() == nullptr
                                            ? std::vector<parallel::SlotRange>{}
                                            : ledger_.held_recently(sequence).slots};
}

int64_t KvParking::bytes_of(const Slots& slots) const {
  int64_t bytes = 0;
  for (int64_t layer = 0; layer < cache_.layers(); ++layer)
    if (cache_.is_stored(layer))
      bytes += num_slots(cache_.retention(layer) == Retention::recent ? slots.recent : slots.all) *
               cache_.shape(layer).layer_bytes_per_token();
  return bytes;
}

/// Copies all keys and values between the cache and the host, one head after another. `move` takes
/// the next bytes of the host: it fills them before they are copied to the cache, and gets them
/// after they were copied from it.
template <typename Move>
void KvParking::copy(CopyDirection direction, const Slots& slots, const Move& move) const {
  std::vector<HostTokens> by_kind;
  for (const LayerKind& kind : cache_.kinds())
    by_kind.emplace_back(compute_, kind.shape,
                         num_slots(kind.retention == Retention::recent ? slots.recent : slots.all));
  for (int64_t layer = 0; layer < cache_.layers(); ++layer) {
    if (!cache_.is_stored(layer)) continue;
    const auto& own = cache_.retention(layer) == Retention::recent ? slots.recent : slots.all;
    const int64_t tokens = num_slots(own);
    const HostTokens& host = by_kind[cache_.kind(layer)];
    for (const KvCache::Stored& stored : cache_.stored(layer))
      for (int64_t head = 0; head < stored.vectors.rows(); ++head) {
        if (direction == CopyDirection::from_cache)
          copy_tokens(direction, stored, head, host, own, compute_);
        move(host.vector_span(tokens));
        move(std::as_writable_bytes(host.scale_span(tokens)));
        if (direction == CopyDirection::to_cache)
          copy_tokens(direction, stored, head, host, own, compute_);
        compute_.stream.poll();
      }
  }
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
  // Ranks of other hosts use the folder, too.
  io::File file =
      io::File::make(places_.folder / fmt::format("parked-{:08x}{:08x}", std::random_device()(),
                                                  std::random_device()()),
                     0600);
  std::filesystem::remove(file.path(), ignored);
  file.reserve(bytes);
  return file;
}

int64_t KvParking::park(parallel::SequenceId sequence) {
  const Slots slots = slots_of(sequence);
  Parked parked;
  parked.beside = beside_ == nullptr ? 0 : beside_->bytes(sequence);
  parked.bytes = bytes_of(slots) + parked.beside;
  if (parked.bytes <= places_.host_bytes - host_bytes_)
    parked.memory.reserve(parked.bytes);
  else
    parked.file = make_file(parked.bytes);
  int64_t at = 0;
  const auto take = [&](std::span<const std::byte> bytes) {
    if (parked.file)
      parked.file->write_at(at, bytes);
    else if (!bytes.empty())
      std::memcpy(parked.memory.as<std::byte>() + at, bytes.data(), bytes.size());
    at += std::ssize(bytes);
  };
  copy(CopyDirection::from_cache, slots, take);
  if (parked.beside > 0) {
    std::vector<std::byte> beside(parked.beside);
    beside_->copy_out(sequence, beside);
    take(beside);
  }
  PECIA_CHECK(at == parked.bytes, "{} of {} bytes of sequence {} are parked", at, parked.bytes,
              sequence);
  ledger_.park(sequence);
  host_bytes_ += parked.file ? 0 : at;
  parked_.emplace(sequence, std::move(parked));
  return at;
}

int64_t KvParking::bring_back(parallel::SequenceId sequence, const std::vector<int64_t>& reserved) {
  const auto found = parked_.find(sequence);
  PECIA_CHECK(found != parked_.end(), "sequence {} is not parked", sequence);
  const Parked& parked = found->second;
  ledger_.bring_back(sequence, reserved);
  int64_t at = 0;
  const auto give = [&](std::span<std::byte> bytes) {
    if (parked.file)
      parked.file->read_at(at, bytes);
    else if (!bytes.empty())
      std::memcpy(bytes.data(), parked.memory.as<std::byte>() + at, bytes.size());
    at += std::ssize(bytes);
  };
  copy(CopyDirection::to_cache, slots_of(sequence), give);
  if (parked.beside > 0) {
    std::vector<std::byte> beside(parked.beside);
    give(beside);
    beside_->copy_in(sequence, beside);
  }
  PECIA_CHECK(at == parked.bytes, "{} of {} bytes of sequence {} came back", at, parked.bytes,
              sequence);
  forget(sequence);
  return at;
}

void KvParking::forget(parallel::SequenceId sequence) {
  const auto found = parked_.find(sequence);
  if (found == parked_.end()) return;
  host_bytes_ -= found->second.file ? 0 : found->second.bytes;
  parked_.erase(found);
}

}  // namespace pecia::attention
