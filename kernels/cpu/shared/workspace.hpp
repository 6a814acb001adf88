// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Scratch memory of the backend. It grows to the largest op seen and is never freed between ops.

#include <vector>

#include "lib/base/device/buffer.hpp"

namespace pecia::kernels::cpu {

/// Hands out pieces of a block, each on its own cache lines.
class Carver {
 public:
  explicit Carver(const device::Buffer& buffer) : buffer_(buffer) {}

  /// Counts the bytes that `count` elements take here.
  template <typename T>
  static constexpr int64_t bytes_of(int64_t count) {
    return (count * static_cast<int64_t>(sizeof(T)) + 63) / 64 * 64;
  }

  template <typename T>
  T* take(int64_t count) {
    T* const piece = reinterpret_cast<T*>(buffer_.as<std::byte>() + used_);
    used_ += bytes_of<T>(count);
    PECIA_CHECK(used_ <= buffer_.bytes(), "{} bytes of scratch taken of {}", used_,
                buffer_.bytes());
    return piece;
  }

 private:
  const device::Buffer& buffer_;
  int64_t used_ = 0;
};

class Workspace {
 public:
  /// Makes a block for each thread. Its pages belong to the NUMA node of the thread that first
  /// writes them.
  void reserve_threads(int num_threads, int64_t bytes) {
    if (static_cast<size_t>(num_threads) > threads_.size()) threads_.resize(num_threads);
    for (device::Buffer& buffer : threads_) buffer.reserve(bytes);
  }
  Carver of_thread(int thread) const { return Carver(threads_[thread]); }

  /// Makes a block that outlives a parallel loop.
  void reserve_shared(int64_t bytes) { shared_.reserve(bytes); }
  Carver shared() const { return Carver(shared_); }

 private:
  std::vector<device::Buffer> threads_;
  device::Buffer shared_;
};

}  // namespace pecia::kernels::cpu
