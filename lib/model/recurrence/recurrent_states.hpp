// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A rank's memory of recurrent layers. A sequence has a slot, which does not grow with it: in each
/// of these layers the matrices of the rank's heads, and the tail, which are the last rows of what
/// the convolution sees. All are fp32. While tokens of it may be taken back, it has a second slot.

#include <functional>
#include <map>
#include <vector>

#include "lib/base/core/tensor_view.hpp"
#include "lib/base/device/buffer.hpp"
#include "lib/ranks/parallel/pass.hpp"

namespace pecia::recurrence {

/// Of one rank, which has a part of the heads.
struct StateShape {
  int64_t layers = 0;  ///< that are recurrent
  int64_t heads = 0, key_dim = 0, value_dim = 0;
  int64_t tail_rows = 0, channels = 0;

  int64_t matrix_elements() const { return heads * key_dim * value_dim; }
  int64_t tail_elements() const { return tail_rows * channels; }
  /// Bytes of a sequence.
  int64_t bytes() const {
    return layers * (matrix_elements() + tail_elements()) * size_of(DType::fp32);
  }
};

class RecurrentStates {
 public:
  /// Makes room for `capacity` sequences in memory of `device`, which must outlive this object.
  /// `may_be_any`: sequences may begin with a state that nobody has made, where nobody reads what
  /// passes give.
  RecurrentStates(const StateShape& shape, int64_t capacity, bool may_be_any,
                  device::Device& device);

  const StateShape& shape() const { return shape_; }
  int64_t capacity() const { return capacity_; }
  bool may_be_any() const { return may_be_any_; }

  bool contains(parallel::SequenceId sequence) const { return slots_.contains(sequence); }
  /// Throws InvalidArgument where the sequence has no slot.
  int64_t slot(parallel::SequenceId sequence) const;
  /// Gives the sequence a slot, whose contents are any, if it has none. Throws InvalidArgument where
  /// none is free.
  void take(parallel::SequenceId sequence);
  void release_unless(const std::function<bool(parallel::SequenceId)>& keep);

  /// Keeps the sequence's state, which is that after its first `length` tokens, while further tokens
  /// make another one: the sequence has no slot from now on, and may take one. It must have none kept.
  void keep(parallel::SequenceId sequence, int64_t length);
  bool keeps(parallel::SequenceId sequence) const { return kept_.contains(sequence); }
  /// The slot of what is kept. Throws InvalidArgument where nothing is.
  int64_t kept_slot(parallel::SequenceId sequence) const;
  /// The sequence ends after `length` tokens again: where its state was kept, this is its state, and
  /// what came later is lost. Throws InvalidArgument where another length was kept.
  void go_back(parallel::SequenceId sequence, int64_t length);
  /// Frees the slots of what is kept of other sequences.
  void drop_kept_unless(const std::function<bool(parallel::SequenceId)>& still);

  /// Of a recurrent layer, counted among these: [capacity, heads, key_dim, value_dim].
  TensorView matrices(int64_t layer) const;
  /// [capacity · tail_rows, channels]
  TensorView tails(int64_t layer) const;
  /// What a slot has of them, dense.
  TensorView matrices(int64_t layer, int64_t slot) const {
    return matrices(layer).slice_rows(slot, 1);
  }
  TensorView tail(int64_t layer, int64_t slot) const {
    return tails(layer).slice_rows(slot * shape_.tail_rows, shape_.tail_rows);
  }

 private:
  struct Kept {
    int64_t slot = 0, length = 0;
  };
  TensorView at(int64_t element, std::initializer_list<int64_t> shape) const;

  StateShape shape_;
  bool may_be_any_;
  int64_t capacity_;
  std::map<parallel::SequenceId, int64_t> slots_;
  std::map<parallel::SequenceId, Kept> kept_;  ///< states before tokens that may be taken back
  std::vector<int64_t> free_;
  device::Buffer memory_;  ///< the matrices of all layers, then their tails
};

}  // namespace pecia::recurrence
