// SPDX-License-Identifier: Apache-2.0
#pragma once
/// A point in a stream's work: other streams and the host can wait for it.

#include "lib/base/device/stream.hpp"

namespace pecia::device {

class Event {
 public:
  virtual ~Event() = default;

  /// Marks the end of the work that `stream` has been given so far. An earlier mark is forgotten.
  virtual void record(Stream& stream) = 0;

  /// Work enqueued on `stream` from now on begins after the mark. The host does not wait.
  virtual void make_wait(Stream& stream) = 0;

  /// Whether the mark is reached; true before the first record.
  virtual bool done() const = 0;

  /// Blocks the host until the mark is reached.
  virtual void synchronize() = 0;

  /// Seconds from the mark of `earlier`, an event of the same device, to this mark. Both must be
  /// reached.
  virtual double seconds_since(const Event& earlier) const = 0;
};

}  // namespace pecia::device
