// SPDX-License-Identifier: Apache-2.0
#include "lib/model/recurrence/state_snapshots.hpp"

#include "lib/base/core/error.hpp"

namespace pecia::recurrence {

using parallel::SequenceId;

namespace {

/// Calls `move(dense view, first byte in a snapshot)` for each part of the state in a slot.
template <typename Move>
void each_part(const RecurrentStates& states, int64_t slot, const Move& move) {
  int64_t at = 0;
  for (int64_t layer = 0; layer < states.shape().layers; ++layer)
    for (const TensorView& part : {states.matrices(layer, slot), states.tail(layer, slot)}) {
      move(part, at);
      at += part.elements() * size_of(DType::fp32);
    }
}

}  // namespace

bool goes_on_here(const attention::KvLedger& ledger, SequenceId sequence) {
  const parallel::KvMap& map = ledger.map();
  if (!map.contains(sequence) || map.is_parked(sequence)) return false;
  const auto parent = map.parent(sequence);
  const int64_t length = map.length(sequence);
  return length > (parent ? map.length(*parent) : 0) &&
         map.state_holder(sequence) == ledger.instance();
}

void drop_kept(RecurrentStates& states, const attention::KvLedger& ledger,
               const std::function<bool(SequenceId)>& ends) {
  const parallel::KvMap& map = ledger.map();
  states.drop_kept_unless([&](SequenceId sequence) {
    return map.contains(sequence) && !map.is_parked(sequence) && !(ends && ends(sequence));
  });
}

int64_t StateSnapshots::bytes(SequenceId sequence) const {
  const bool has = goes_on_here(ledger_, sequence) && states_.contains(sequence);
  return has ? shape().bytes() : 0;
}

void StateSnapshots::copy_out(SequenceId sequence, std::span<std::byte> to) const {
  PECIA_CHECK(std::ssize(to) == bytes(sequence), "{} bytes for the state of sequence {}, it has {}",
              to.size(), sequence, bytes(sequence));
  if (to.empty()) return;
  each_part(states_, states_.slot(sequence), [&](const TensorView& part, int64_t at) {
    compute_.device.copy(to.data() + at, part.data(), part.elements() * size_of(DType::fp32),
                         compute_.stream);
  });
  compute_.stream.synchronize();
}

int64_t StateSnapshots::expect(SequenceId sequence) {
  drop_kept(states_, ledger_);
  if (!states_.contains(sequence))  // a pass that is under way may need what goes on elsewhere
    states_.release_unless([&](SequenceId of) { return goes_on_here(ledger_, of); });
  states_.take(sequence);
  return shape().bytes();
}

void StateSnapshots::copy_in(SequenceId sequence, std::span<const std::byte> from) {
  PECIA_CHECK(std::ssize(from) == shape().bytes(), "{} bytes are a state of sequence {}, not {}",
              shape().bytes(), sequence, from.size());
  drop_kept(states_, ledger_);
  expect(sequence);
  each_part(states_, states_.slot(sequence), [&](const TensorView& part, int64_t at) {
    compute_.device.copy(part.data(), from.data() + at, part.elements() * size_of(DType::fp32),
                         compute_.stream);
  });
  compute_.stream.synchronize();
}

}  // namespace pecia::recurrence
