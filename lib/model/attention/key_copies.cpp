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
  leaving_.clear(), leaving_beside_.clear();
  const int own = ledger_.instance();
  for (const parallel::KeyCopy& copy : copies) {
    if (copy.state_from == own) leaving_beside_[copy.instance].push_back(copy.of);
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
    device::Buffer message = make_room(to, bytes);
    {
      const report::ScopedSpan span(compute_.recorder, "pack_copied_keys", report::Kind::compute,
                                    bytes);
      copy(Direction::from_cache, layer, tokens.slots, message.as<std::byte>());
    }
    start(to, std::move(message), bytes);
  }
}

void KeyCopies::send_beside() {
  for (const auto& [to, sequences] : leaving_beside_) {
    PECIA_CHECK(group_ != nullptr && beside_ != nullptr, "{} states are to be copied to rank {}",
                sequences.size(), to);
    int64_t bytes = 0;
    for (const parallel::SequenceId sequence : sequences) bytes += beside_->bytes(sequence);
    device::Buffer message = make_room(to, bytes);
    {
      const report::ScopedSpan span(compute_.recorder, "pack_copied_states", report::Kind::compute,
                                    bytes);
      std::byte* at = message.as<std::byte>();
      for (const parallel::SequenceId sequence : sequences) {
        const auto each = static_cast<size_t>(beside_->bytes(sequence));
        beside_->copy_out(sequence, {at, each});
        at += each;
      }
    }
    start(to, std::move(message), bytes);
  }
}

/// A buffer for the next message to a rank. Waits until those before leave room for it.
device::Buffer KeyCopies::make_room(int to, int64_t bytes) {
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
  return take_buffer(bytes);
}

void KeyCopies::start(int to, device::Buffer message, int64_t bytes) {
  Sent sent{std::move(message), nullptr};
  sent.transfer = group_->start_send_receive(
      {sent.bytes.as<std::byte>(), static_cast<size_t>(bytes)}, to, {}, to);
  sent_[to].push_back(std::move(sent));
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
    if (copy.instance != own || copy.state_from == parallel::SequenceState::nobody) continue;
    PECIA_CHECK(beside_ != nullptr, "a state of sequence {} is to come", copy.of);
    Coming& of = coming[copy.state_from];
    of.sequences.push_back(copy.to), of.beside.push_back(copy.to);
    of.beside_bytes = beside_->expect(copy.to);
  }
  for (auto& [from, of] : coming) sources_[from].coming.push_back(std::move(of));
  progress();
}

/// Asks for the source's next messages, as long as not too much is under way.
void KeyCopies::ask(int from, Source& source) {
  while (source.asked < source.coming.size()) {
    const Coming& next = source.coming[source.asked];
    const int64_t layer = next_message(next, source.layer);
    if (layer > cache_.layers()) {
      source.layer = before_first;
      ++source.asked;
      continue;
    }
    const int64_t bytes = bytes_of(next, layer);
    if (!source.messages.empty() && source.bytes + bytes > most_bytes_) return;
    Message message{&next, layer, take_buffer(bytes), nullptr};
    message.transfer = group_->start_send_receive(
        {}, from, {message.bytes.as<std::byte>(), static_cast<size_t>(bytes)}, from);
    source.messages.push_back(std::move(message));
    source.bytes += bytes;
    source.layer = layer;
  }
}

/// Waits for the source's next message and puts it into the cache.
void KeyCopies::take_in(int from, Source& source) {
  Message message = std::move(source.messages.front());
  source.messages.pop_front();
  message.transfer->wait();
  const Coming& of = *message.of;
  const int64_t bytes = bytes_of(of, message.layer);
  if (message.layer == cache_.layers()) {
    const report::ScopedSpan span(compute_.recorder, "take_in_copied_states", report::Kind::phase,
                                  bytes);
    std::byte* at = message.bytes.as<std::byte>();
    for (const parallel::SequenceId sequence : of.beside) {
      beside_->copy_in(sequence, {at, static_cast<size_t>(of.beside_bytes)});
      at += of.beside_bytes;
    }
  } else {
    const report::ScopedSpan span(compute_.recorder, "take_in_copied_keys", report::Kind::phase,
                                  bytes);
    copy(Direction::to_cache, message.layer, of.tokens.slots, message.bytes.as<std::byte>());
  }
  source.bytes -= bytes;
  free_.push_back(std::move(message.bytes));
  if (next_message(of, message.layer) > cache_.layers()) {
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

int64_t KeyCopies::bytes_of(const Coming& coming, int64_t layer) const {
  return layer < cache_.layers() ? bytes_of(coming.tokens, layer)
                                 : coming.beside_bytes * std::ssize(coming.beside);
}

/// The message after that of a layer: of the next one that stores keys, then of what is beside keys,
/// which counts as a layer behind the last one. Beyond that there is none.
int64_t KeyCopies::next_message(const Coming& coming, int64_t layer) const {
  if (layer == cache_.layers()) return layer + 1;
  const int64_t next = coming.tokens.count > 0 ? next_stored(layer + 1) : cache_.layers();
  return next == cache_.layers() && coming.beside.empty() ? next + 1 : next;
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
