// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Where a rank computes. Each object that enqueues work is given a Compute. The things that it
/// names outlive all of these objects.

#include <memory>
#include <span>
#include <vector>

#include "kernels/api/backend.hpp"
#include "lib/base/device/buffer.hpp"
#include "lib/base/report/spans.hpp"
#include "lib/ranks/comm/communicator.hpp"

namespace pecia::attention {

/// The memory of a dense tensor.
inline std::span<std::byte> bytes_of(const TensorView& tensor) {
  return {static_cast<std::byte*>(tensor.data()),
          static_cast<size_t>(tensor.elements() * size_of(tensor.dtype()))};
}

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
  /// Returns x [rows, width] or [rows, heads, head_dim] itself if it is of the type, or else a dense
  /// copy of this type in `buffer`. It is valid until the buffer's next use.
  TensorView as_type(const TensorView& x, DType type, device::Buffer& buffer) const;

  /// Start a transfer that every rank of the group starts, in the same order. In a step it may be held
  /// back with the ops around it, unless each op is timed.
  std::unique_ptr<comm::Transfer> start_all_to_all(comm::Communicator& group,
                                                   const comm::Blocks& blocks) const;
  std::unique_ptr<comm::Transfer> start_send_receive(comm::Communicator& group,
                                                     std::span<const std::byte> send, int to,
                                                     std::span<std::byte> receive, int from) const;
  /// Waits for transfers of `bytes` bytes together in a span with this name.
  void wait(std::span<const std::unique_ptr<comm::Transfer>> transfers, const char* name,
            int64_t bytes) const;
  void wait(comm::Transfer& transfer, const char* name, int64_t bytes) const;
};

}  // namespace pecia::attention
