// SPDX-License-Identifier: Apache-2.0
#include "lib/model/attention/key_copies.hpp"

#include <algorithm>
#include <utility>

#include "lib/base/core/error.hpp"

namespace pecia::attention {
namespace {

/// Adds a slot, to the last range where it is the next one.
void add_slot(std::vector<parallel::SlotRange>& ranges, int64_t slot) {
  if (!ranges.empty() && ranges.back().end == slot)
    ++ranges.back().end;
  else
    ranges.push_back({slot, slot + 1});
}

void append_ranges(std::vector<parallel::SlotRange>& to,
                   const std::vector<parallel::SlotRange>& ranges) {
  for (const parallel::SlotRange& range : ranges) {
    if (!to.empty() && to.back().end == range.begin)
      to.back().end = range.end;
    else
      to.push_back(range);
  }
}

}  // namespace

void KeyCopies::begin_pass(const std::vector<parallel::KeyCopy>& copies) {
  leaving_.clear();
  const int own = ledger_.instance();
  for (const parallel::KeyCopy& copy : copies) {
    if (std::ranges::count(copy.sources, own, &parallel::KeySource::instance) == 0) continue;
    PECIA_CHECK(group_ != nullptr, "keys of sequence {} are to be copied, without a group for it",
                copy.of);
    Tokens& leaving = leaving_[copy.instance];
    const auto& slots = ledger_.slots(copy.of);
    for (const auto& [index, positions] : parallel::held_between(
             ledger_.map().ranges(copy.of, own), copy.first, copy.first + copy.count)) {
      append_ranges(leaving.slots, part_of(slots, index, positions.count));
      leaving.count += positions.count;
    }
  }
}

void KeyCopies::send(int64_t layer) {
  if (!cache_.is_stored(layer)) return;
  for (const auto& [to, tokens] : leaving_) {
    const int64_t bytes = bytes_of(tokens, layer);
    std::deque<Sent>& sent = sent_[to];
    int64_t under_way = bytes;
    for (const Sent& message : sent) under_way += message.bytes.bytes();
    while (!sent.empty() && (under_way > most_bytes_ || sent.front().transfer->test())) {
      const report::ScopedSpan span(compute_.recorder, "wait_for_sent_keys", report::Kind::comm);
      sent.front().transfer->wait();
      under_way -= sent.front().bytes.bytes();
      free_.push_back(std::move(sent.front().bytes));
      sent.pop_front();
    }
    Sent message{take_buffer(bytes), nullptr};
    {
      const report::ScopedSpan span(compute_.recorder, "pack_copied_keys", report::Kind::compute,
                                    bytes);
      copy(Direction::from_cache, layer, tokens.slots, message.bytes.as<std::byte>());
    }
    message.transfer = group_->start_send_receive(
        {message.bytes.as<std::byte>(), static_cast<size_t>(bytes)}, to, {}, to);
    sent.push_back(std::move(message));
  }
}

void KeyCopies::receive(const std::vector<parallel::KeyCopy>& copies) {
  const int own = ledger_.instance();
  std::map<int, Coming> coming;  // by rank
  for (const parallel::KeyCopy& copy : copies) {
    PECIA_CHECK(group_ != nullptr, "keys of sequence {} are to come, without a group for it",
                copy.of);
    if (copy.instance == own) {
      std::vector<int64_t> slots;  // by position
      append_slots(slots, ledger_.next_slots(copy.to, copy.count));
      for (const parallel::KeySource& source : copy.sources) {
        Coming& of = coming[source.instance];
        of.sequences.push_back(copy.to);
        for (const parallel::StridedRange& positions : source.positions)
          for (int64_t i = 0; i < positions.count; ++i)
            add_slot(of.tokens.slots, slots.at(positions.position(i) - copy.first));
        of.tokens.count = num_slots(of.tokens.slots);
      }
    }
    ledger_.append(copy.rows(), copy.team());
  }
  for (auto& [from, of] : coming) sources_[from].coming.push_back(std::move(of));
  progress();
}

/// Asks for the source's next messages, as long as not too much is under way.
void KeyCopies::ask(int from, Source& source) {
  while (source.asked < source.coming.size()) {
    const Coming& next = source.coming[source.asked];
    const int64_t bytes = bytes_of(next.tokens, source.layer);
    if (!source.messages.empty() && source.bytes + bytes > most_bytes_) return;
    Message message{&next, source.layer, take_buffer(bytes), nullptr};
    message.transfer = group_->start_send_receive(
        {}, from, {message.bytes.as<std::byte>(), static_cast<size_t>(bytes)}, from);
    source.messages.push_back(std::move(message));
    source.bytes += bytes;
    source.layer = next_stored(source.layer + 1);
    if (source.layer < cache_.layers()) continue;
    source.layer = 0;
    ++source.asked;
  }
}

/// Waits for the source's next message and puts it into the cache.
void KeyCopies::take_in(int from, Source& source) {
  Message message = std::move(source.messages.front());
  source.messages.pop_front();
  message.transfer->wait();
  const int64_t bytes = bytes_of(message.of->tokens, message.layer);
  {
    const report::ScopedSpan span(compute_.recorder, "take_in_copied_keys", report::Kind::phase,
                                  bytes);
    copy(Direction::to_cache, message.layer, message.of->tokens.slots,
         message.bytes.as<std::byte>());
  }
  source.bytes -= bytes;
  free_.push_back(std::move(message.bytes));
  if (next_stored(message.layer + 1) == cache_.layers()) {
    source.coming.pop_front();
    --source.asked;
  }
  ask(from, source);
}

void KeyCopies::progress() {
  for (auto& [from, source] : sources_) {
    ask(from, source);
    while (!source.messages.empty() && source.messages.front().transfer->test())
      take_in(from, source);
  }
}

void KeyCopies::wait_for(parallel::SequenceId sequence) {
  for (auto& [from, source] : sources_) {
    const auto is_to_come = [&] {
      return std::ranges::any_of(source.coming, [&](const Coming& of) { return of.has(sequence); });
    };
    if (!is_to_come()) continue;
    const report::ScopedSpan span(compute_.recorder, "wait_for_copied_keys", report::Kind::comm);
    for (ask(from, source); is_to_come(); take_in(from, source)) {
    }
  }
}

void KeyCopies::finish() {
  for (auto& [from, source] : sources_)
    for (ask(from, source); !source.coming.empty(); take_in(from, source)) {
    }
  for (auto& [to, sent] : sent_)
    for (; !sent.empty(); sent.pop_front()) sent.front().transfer->wait();
}

int64_t KeyCopies::bytes_of(const Tokens& tokens, int64_t layer) const {
  return tokens.count * cache_.shape(layer).layer_bytes_per_token();
}

/// The first layer from this one on that stores keys; the number of layers if there is none.
int64_t KeyCopies::next_stored(int64_t layer) const {
  while (layer < cache_.layers() && !cache_.is_stored(layer)) ++layer;
  return layer;
}

device::Buffer KeyCopies::take_buffer(int64_t bytes) {
  device::Buffer buffer = compute_.buffer();
  if (!free_.empty()) {
    buffer = std::move(free_.back());
    free_.pop_back();
  }
  buffer.reserve(bytes);
  return buffer;
}

/// Copies a layer's keys and values between these slots of the cache and a message.
void KeyCopies::copy(Direction direction, int64_t layer,
                     const std::vector<parallel::SlotRange>& slots, std::byte* message) const {
  const auto copy_part = [&](const TensorView& stored) {
    if (!stored) return;
    const int64_t token_bytes = bytes_of_slot(stored);
    for (int64_t head = 0; head < stored.rows(); ++head) {
      auto* const of_head = static_cast<std::byte*>(stored.row(head));
      for (const parallel::SlotRange& range : slots) {
        std::byte* const cached = of_head + range.begin * token_bytes;
        const int64_t bytes = range.size() * token_bytes;
        if (direction == Direction::from_cache)
          compute_.device.copy(message, cached, bytes, compute_.stream);
        else
          compute_.device.copy(cached, message, bytes, compute_.stream);
        message += bytes;
      }
    }
  };
  for (const KvCache::Stored& stored : cache_.stored(layer)) {
    copy_part(stored.vectors);
    copy_part(stored.scales);
  }
}

}  // namespace pecia::attention
