// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Owner of a block of memory, not initialised. The host's is aligned to cache lines, a device's to
/// 256 bytes.

#include <cstdint>
#include <memory>

#include "lib/core/error.hpp"
#include "lib/core/tensor_view.hpp"
#include "lib/device/device.hpp"

namespace pecia::device {

class Buffer {
 public:
  /// Of host memory, as it grows.
  Buffer() : Buffer(nullptr, Memory::host, 0) {}
  explicit Buffer(int64_t bytes) : Buffer(nullptr, Memory::host, bytes) {}
  /// Of `memory` of a device that outlives it.
  Buffer(Device& device, Memory memory, int64_t bytes = 0) : Buffer(&device, memory, bytes) {}

  int64_t bytes() const { return bytes_; }
  Memory memory() const { return data_.get_deleter().memory; }
  void* data() const { return data_.get(); }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

  /// Makes room for `bytes`; what was there is lost when it has to grow. Never shrinks. Growing
  /// device memory waits for the device.
  void reserve(int64_t bytes);

  /// A dense tensor at the beginning, making room for it first.
  TensorView tensor(DType dtype, std::initializer_list<int64_t> shape);

 private:
  struct Free {
    Device* device;  ///< null: the host's allocator
    Memory memory;
    void operator()(std::byte* data) const noexcept;
  };
  Buffer(Device* device, Memory memory, int64_t bytes);

  std::unique_ptr<std::byte, Free> data_;
  int64_t bytes_;
};

}  // namespace pecia::device
