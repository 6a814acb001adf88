// SPDX-License-Identifier: Apache-2.0
#include "lib/model/recurrence/recurrent_states.hpp"

#include "lib/base/core/error.hpp"

namespace pecia::recurrence {
namespace {

/// Throws InvalidArgument beyond 2^63.
int64_t bytes_of_all(const StateShape& shape, int64_t capacity) {
  PECIA_CHECK(capacity >= 0, "states of {} sequences", capacity);
  int64_t bytes = 0;
  PECIA_CHECK(!__builtin_mul_overflow(shape.bytes(), capacity, &bytes),
              "states of {} sequences with {} bytes each", capacity, shape.bytes());
  return bytes;
}

}  // namespace

RecurrentStates::RecurrentStates(const StateShape& shape, int64_t capacity, bool may_be_any,
                                 device::Device& device)
    : shape_(shape),
      may_be_any_(may_be_any),
      capacity_(capacity),
      memory_(device, device::Memory::device, bytes_of_all(shape, capacity)) {
  for (int64_t slot = capacity; slot-- > 0;) free_.push_back(slot);
}

int64_t RecurrentStates::slot(parallel::SequenceId sequence) const {
  const auto found = slots_.find(sequence);
  PECIA_CHECK(found != slots_.end(), "sequence {} has no state", sequence);
  return found->second;
}

void RecurrentStates::take(parallel::SequenceId sequence) {
  if (contains(sequence)) return;
  PECIA_CHECK(!free_.empty(), "no state is free for sequence {}: {} have one", sequence, capacity_);
  slots_[sequence] = free_.back();
  free_.pop_back();
}

void RecurrentStates::release_unless(const std::function<bool(parallel::SequenceId)>& keep) {
  std::erase_if(slots_, [&](const auto& of) {
    if (keep(of.first)) return false;
    free_.push_back(of.second);
    return true;
  });
}

void RecurrentStates::keep(parallel::SequenceId sequence, int64_t length) {
  PECIA_CHECK(!keeps(sequence), "a state of sequence {} is kept already", sequence);
  kept_[sequence] = {slot(sequence), length};
  slots_.erase(sequence);
}

int64_t RecurrentStates::kept_slot(parallel::SequenceId sequence) const {
  const auto found = kept_.find(sequence);
  PECIA_CHECK(found != kept_.end(), "no state of sequence {} is kept", sequence);
  return found->second.slot;
}

void RecurrentStates::go_back(parallel::SequenceId sequence, int64_t length) {
  if (!keeps(sequence)) return;
  const Kept kept = kept_.at(sequence);
  PECIA_CHECK(kept.length == length,
              "sequence {} goes back to {} tokens, its state after {} is kept", sequence, length,
              kept.length);
  kept_.erase(sequence);
  if (contains(sequence)) free_.push_back(slot(sequence));
  slots_[sequence] = kept.slot;
}

void RecurrentStates::drop_kept_unless(const std::function<bool(parallel::SequenceId)>& still) {
  std::erase_if(kept_, [&](const auto& of) {
    if (still(of.first)) return false;
    free_.push_back(of.second.slot);
    return true;
  });
}

TensorView RecurrentStates::at(int64_t element, std::initializer_list<int64_t> shape) const {
  return {static_cast<void*>(memory_.as<std::byte>() + element * size_of(DType::fp32)), DType::fp32,
          shape};
}

TensorView RecurrentStates::matrices(int64_t layer) const {
  return at(layer * capacity_ * shape_.matrix_elements(),
            {capacity_, shape_.heads, shape_.key_dim, shape_.value_dim});
}

TensorView RecurrentStates::tails(int64_t layer) const {
  return at(capacity_ * (shape_.layers * shape_.matrix_elements() + layer * shape_.tail_elements()),
            {capacity_ * shape_.tail_rows, shape_.channels});
}

}  // namespace pecia::recurrence
