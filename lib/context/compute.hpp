// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Where a rank computes. Whoever enqueues work is given one; what it names outlives them all.

#include <vector>

#include "kernels/api/backend.hpp"
#include "lib/device/buffer.hpp"
#include "lib/report/spans.hpp"

namespace pecia::context {

struct Compute {
  device::Device& device;
  device::Stream& stream;  ///< of the device: ops, copies and transfers in the order given
  kernels::Backend& backend;
  report::Recorder& recorder;

  /// Of the device, where tensors are; the host may not look into it.
  device::Buffer buffer(int64_t bytes = 0) const { return {device, device::Memory::device, bytes}; }
  std::vector<device::Buffer> buffers(int count) const;

  /// Copies the elements after what the stream holds: shapes and types are equal, rows may be
  /// strided.
  void copy(const TensorView& from, const TensorView& to) const;
};

}  // namespace pecia::context
