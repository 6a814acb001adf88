// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Owns a block of uninitialised memory. Host memory is aligned to cache lines, device memory to
/// 256 bytes.

#include <cstdint>
#include <memory>

#include "lib/base/core/error.hpp"
#include "lib/base/core/tensor_view.hpp"
#include "lib/base/device/device.hpp"

namespace pecia::device {

class Buffer {
 public:
  /// An empty buffer of host memory, which `reserve` and `tensor` grow.
  Buffer() : Buffer(nullptr, Memory::host, 0) {}
  explicit Buffer(int64_t bytes) : Buffer(nullptr, Memory::host, bytes) {}
  /// A buffer in `memory` of a device, which outlives the buffer.
  Buffer(Device& device, Memory memory, int64_t bytes = 0) : Buffer(&device, memory, bytes) {}

  int64_t bytes() const { return bytes_; }
  Memory memory() const { return data_.get_deleter().memory; }
  void* data() const { return data_.get(); }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

  /// Makes room for `bytes`. When the buffer has to grow, its contents are lost. It never shrinks.
  /// Growing device memory waits for the device.
  void reserve(int64_t bytes);

  /// Makes room for a dense tensor at the beginning of the buffer and returns a view of it.
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
