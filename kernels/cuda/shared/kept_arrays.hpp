// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Brings host arrays to the device that are the same from call to call, such as tables of weights.
/// Each is sent once and stays there, so a step that names it again copies nothing.

#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include "lib/base/device/buffer.hpp"

namespace pecia::kernels::cuda {

class KeptArrays {
 public:
  /// The device must outlive this object. The object serves one stream at a time.
  explicit KeptArrays(device::Device& device) : device_(device) {}

  /// Returns where the array is on the device, after the copy if it was not there. Arrays of the same
  /// bytes are one.
  template <typename T>
  const T* keep(std::span<const T> values, device::Stream& stream) {
    static_assert(std::has_unique_object_representations_v<T>, "bytes between members differ");
    return static_cast<const T*>(keep_bytes(std::as_bytes(values), stream));
  }

  /// Forgets all arrays, whose copies may be among dropped work (device::Stream::drop_step).
  void forget() { kept_.clear(); }

  size_t size() const { return kept_.size(); }

 private:
  struct Kept {
    device::Buffer pinned, there;
  };
  const void* keep_bytes(std::span<const std::byte> bytes, device::Stream& stream);

  device::Device& device_;
  std::vector<Kept> kept_;
};

}  // namespace pecia::kernels::cuda
