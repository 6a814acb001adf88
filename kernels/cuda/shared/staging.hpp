// SPDX-License-Identifier: Apache-2.0
#pragma once
/// Brings small host arrays (positions, slots, tiles) to the device.
///
/// An op puts all its arrays into one piece of pinned memory and sends it with one copy, ordered on
/// its stream. This takes one memcpy on the host, one transfer and no waiting. Pieces lie in a ring
/// of segments. A segment is used again once the stream has passed the ops that used it. So the
/// host waits only when it is `num_segments` segments ahead. The object serves one stream at a
/// time.
///
/// In a step (device::Stream::begin_step) pieces lie in an arena instead. Each piece is longer than
/// it needs to be, so that pieces keep their places from step to step while their sizes change a
/// little. So the same work names the same addresses. The pieces stay until the next step begins,
/// which waits for them.

#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "lib/base/device/buffer.hpp"

namespace pecia::kernels::cuda {

class Staging {
 public:
  /// Takes `num_segments` · `segment_bytes` on the host and as much on the device. The device must
  /// outlive this object.
  explicit Staging(device::Device& device, int64_t segment_bytes = int64_t{4} << 20);

  /// Counts the bytes that `count` elements take.
  template <typename T>
  static int64_t bytes_of(int64_t count) {
    return (count * static_cast<int64_t>(sizeof(T)) + alignment - 1) / alignment * alignment;
  }
  template <typename T>
  static int64_t bytes_of(std::span<const T> values) {
    return bytes_of<T>(static_cast<int64_t>(values.size()));
  }

  /// Begins a piece of at most `bytes`, which is the sum of bytes_of over all its arrays. What was
  /// sent before stays until the kernels that are enqueued already are done. For kernels that are
  /// not yet enqueued it stays only until the next begin.
  void begin(int64_t bytes, device::Stream& stream);

  /// Copies an array into the piece. Returns where it will be on the device, or null if it is
  /// empty.
  template <typename T>
  const T* add(std::span<const T> values) {
    return add(values, static_cast<int64_t>(values.size()));
  }
  /// Does the same with room for `count` elements. Elements past the array are zeros.
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

  /// Does begin, add and send for one array. In a step the array is sent once, and then must stay
  /// as it is.
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
  /// Must be called after the stream's end_step.
  void end_step(device::Stream& stream);
  /// Replaces end_step after an error.
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

  /// Memory of the same size on both sides.
  struct Chunk {
    device::Buffer pinned, on_device;
  };
  Chunk make_chunk(int64_t bytes);

  device::Device& device_;
  int64_t segment_bytes_ = 0;
  Chunk segments_;
  /// Events that come when the stream leaves each segment.
  std::array<std::unique_ptr<device::Event>, num_segments> left_;
  int segment_ = 0;
  int64_t used_ = 0;  ///< bytes used in the segment

  struct SentArray {
    const void* from;
    size_t bytes;
    const void* there;
  };

  bool in_step_ = false;
  std::vector<SentArray> sent_;  ///< sent in the step
  std::vector<Chunk> arena_;     ///< there is more than one only till the next step
  int64_t arena_used_ = 0;       ///< bytes used in the last chunk
  std::unique_ptr<device::Event> step_done_;

  // The piece.
  Chunk* chunk_ = nullptr;
  int64_t begin_ = 0, next_ = 0, end_ = 0;
};

}  // namespace pecia::kernels::cuda
