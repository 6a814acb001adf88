// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Where a rank computes. Each object that enqueues work is given a Compute. The things that it
/// names outlive all of these objects.

#include <vector>

#include "kernels/api/backend.hpp"
#include "lib/base/device/buffer.hpp"
#include "lib/base/report/spans.hpp"
#include "lib/ranks/comm/communicator.hpp"

namespace pecia::attention {

struct Compute {
  device::Device& device;
  device::Stream& stream;  ///< stream of `device`; does ops, copies and transfers in order
  kernels::Backend& backend;
  report::Recorder& recorder;

  /// Returns a buffer of the device, where tensors are. The host must not look into it.
  device::Buffer buffer(int64_t bytes = 0) const { return {device, device::Memory::device, bytes}; }
  std::vector<device::Buffer> buffers(int count) const;

  /// Copies the elements after the work that the stream holds, widened or rounded if the types are
  /// fp32 and bf16. Rows may be strided, and have the same number of elements on both sides.
  void copy(const TensorView& from, const TensorView& to) const;
  /// Returns x itself if it is of the type, or else a dense copy of this type in `buffer`. It is
  /// valid until the buffer's next use.
  TensorView as_type(const TensorView& x, DType type, device::Buffer& buffer) const;

  /// Waits for the transfer of `bytes` bytes in a span with this name.
  void wait(comm::Transfer& transfer, const char* name, int64_t bytes) const;
};

}  // namespace pecia::attention
