// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A point in a stream's work: other streams and the host can wait for it.

#include "lib/device/stream.hpp"

namespace pecia::device {

class Event {
 public:
  virtual ~Event() = default;

  /// Marks what `stream` has been given so far; a mark made earlier is forgotten.
  virtual void record(Stream& stream) = 0;

  /// What is enqueued on `stream` from now on begins after the mark. The host does not wait.
  virtual void make_wait(Stream& stream) = 0;

  /// Whether the mark is reached; true before the first record.
  virtual bool done() const = 0;

  /// Blocks the host until it is.
  virtual void synchronize() = 0;

  /// From the mark of `earlier`, an event of the same device, to this one; both are reached.
  virtual double seconds_since(const Event& earlier) const = 0;
};

}  // namespace pecia::device
