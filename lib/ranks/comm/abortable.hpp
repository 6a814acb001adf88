// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

namespace pecia::comm {

/// Operations of some ranks on the device, which nobody can end but by aborting them.
class Abortable {
 public:
  virtual ~Abortable() = default;
  /// The error of an operation that was started, or of another rank; "" when there is none. Never
  /// blocks.
  virtual std::string asynchronous_error() = 0;
  /// Ends all operations under way, even if they wait for other ranks. No operation can be started
  /// afterwards. It may be called once more, and from another thread while a call waits for other
  /// ranks: the call returns with an error then. NCCL does not guarantee that either call returns;
  /// bound your wait.
  virtual void abort() noexcept = 0;
};

}  // namespace pecia::comm
