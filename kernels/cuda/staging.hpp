// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Small host arrays (positions, slots, tiles) on their way to the device.
///
/// An op puts all its arrays into one piece of pinned memory and sends it with one copy, ordered on
/// its stream: one memcpy on the host, one transfer, no waiting. Pieces lie in a ring of segments;
/// a segment is used again once the stream has passed the ops that used it, so the host waits only
/// when it is `num_segments` segments ahead. One stream at a time.
///
/// In a step (device::Stream::begin_step) pieces lie in an arena instead, each as much longer as
/// keeps them in the same places from step to step while their sizes change a little, so that the
/// same work names the same addresses. They stay until the next step begins, which waits for them.

#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "lib/device/buffer.hpp"

namespace pecia::kernels::cuda {

class Staging {
 public:
  /// Twice `num_segments` · `segment_bytes`: on the host and on the device. The device outlives it.
  explicit Staging(device::Device& device, int64_t segment_bytes = int64_t{4} << 20);

  /// Room that `count` elements take.
  template <typename T>
  static int64_t bytes_of(int64_t count) {
    return (count * static_cast<int64_t>(sizeof(T)) + alignment - 1) / alignment * alignment;
  }
  template <typename T>
  static int64_t bytes_of(std::span<const T> values) {
    return bytes_of<T>(static_cast<int64_t>(values.size()));
  }

  /// Begins a piece of at most `bytes`, the sum of bytes_of all its arrays. What was sent before
  /// stays until the next begin for kernels not yet enqueued, and until they are done for others.
  void begin(int64_t bytes, device::Stream& stream);

  /// Copies an array into the piece; where it will be on the device. Null for no elements.
  template <typename T>
  const T* add(std::span<const T> values) {
    return add(values, static_cast<int64_t>(values.size()));
  }
  /// The same with room for `count` elements, of which those after the last of the array are zeros.
  template <typename T>
  const T* add(std::span<const T> values, int64_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (count == 0) return nullptr;
    const int64_t at = take(bytes_of<T>(count));
    std::byte* const to = chunk_->pinned.as<std::byte>() + at;
    if (!values.empty()) std::memcpy(to, values.data(), values.size_bytes());
    std::memset(to + values.size_bytes(), 0, count * sizeof(T) - values.size_bytes());
    return reinterpret_cast<const T*>(chunk_->on_device.as<std::byte>() + at);
  }

  /// Enqueues the copy of the piece.
  void send(device::Stream& stream);

  /// All three with one array, which is sent once in a step: then it stays as it is.
  template <typename T>
  const T* send_array(std::span<const T> values, device::Stream& stream) {
    for (const SentArray& sent : sent_)
      if (sent.from == values.data() && sent.bytes == values.size_bytes())
        return static_cast<const T*>(sent.there);
    begin(bytes_of(values), stream);
    const T* const there = add(values);
    send(stream);
    if (in_step_) sent_.push_back({values.data(), values.size_bytes(), there});
    return there;
  }

  bool in_step() const { return in_step_; }
  void begin_step();
  /// After the stream's.
  void end_step(device::Stream& stream);
  /// In place of end_step, after an error.
  void drop_step() {
    in_step_ = false;
    sent_.clear();
  }

  static constexpr int num_segments = 4;

 private:
  static constexpr int64_t alignment = 256;
  int64_t take(int64_t bytes);
  void allocate(int64_t segment_bytes);
  void begin_in_arena(int64_t bytes);

  /// The same bytes on both sides.
  struct Chunk {
    device::Buffer pinned, on_device;
  };
  Chunk make_chunk(int64_t bytes);

  device::Device& device_;
  int64_t segment_bytes_ = 0;
  Chunk segments_;
  std::array<std::unique_ptr<device::Event>, num_segments> left_;  ///< by the stream
  int segment_ = 0;
  int64_t used_ = 0;  ///< of the segment

  struct SentArray {
    const void* from;
    size_t bytes;
    const void* there;
  };

  bool in_step_ = false;
  std::vector<SentArray> sent_;  ///< in the step
  std::vector<Chunk> arena_;     ///< more than one only till the next step
  int64_t arena_used_ = 0;       ///< of the last one
  std::unique_ptr<device::Event> step_done_;

  // The piece.
  Chunk* chunk_ = nullptr;
  int64_t begin_ = 0, next_ = 0, end_ = 0;
};

}  // namespace pecia::kernels::cuda
