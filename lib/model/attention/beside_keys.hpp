// SPDX-License-Identifier: Apache-2.0
#pragma once
/// What a rank keeps of sequences beside their keys and values, and what leaves and comes back with
/// these, or goes to another rank with them: the states of recurrent layers.

#include <cstddef>
#include <cstdint>
#include <span>

#include "lib/ranks/parallel/pass.hpp"

namespace pecia::attention {

class BesideKeys {
 public:
  virtual ~BesideKeys() = default;

  /// Bytes that this rank has of the sequence now; 0: nothing.
  virtual int64_t bytes(parallel::SequenceId sequence) const = 0;
  /// Copies them, to any memory. Waits for the copy.
  virtual void copy_out(parallel::SequenceId sequence, std::span<std::byte> to) const = 0;
  /// Between two passes: makes room for the bytes of a sequence that come later from another rank.
  /// Returns their number.
  virtual int64_t expect(parallel::SequenceId sequence) = 0;
  /// Gives them to the sequence, which has its keys again, or which expects them.
  virtual void copy_in(parallel::SequenceId sequence, std::span<const std::byte> from) = 0;
};

}  // namespace pecia::attention
