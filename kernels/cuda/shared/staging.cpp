// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/shared/staging.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace pecia::kernels::cuda {
namespace {

/// In eight steps from one power of two to the next.
int64_t rounded_up(int64_t bytes, int64_t alignment) {
  const auto step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes))) / 8;
  const int64_t unit = std::max(step, alignment);
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

Staging::Staging(device::Device& device, int64_t segment_bytes)
    : device_(device), segments_(make_chunk(0)), step_done_(device.make_event()) {
  for (auto& event : left_) event = device.make_event();
  allocate(segment_bytes);
}

Staging::Chunk Staging::make_chunk(int64_t bytes) {
  return {{device_, device::Memory::pinned, bytes}, {device_, device::Memory::device, bytes}};
}

void Staging::allocate(int64_t segment_bytes) {
  segment_bytes_ = segment_bytes;
  segments_.pinned.reserve(num_segments * segment_bytes);
  segments_.on_device.reserve(num_segments * segment_bytes);
  segment_ = 0;
  used_ = 0;
}

void Staging::begin(int64_t bytes, device::Stream& stream) {
  if (in_step_) return begin_in_arena(bytes);
  if (bytes > segment_bytes_) {
    stream.synchronize();
    allocate(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes))));
  } else if (used_ + bytes > segment_bytes_) {
    left_[segment_]->record(stream);
    segment_ = (segment_ + 1) % num_segments;
    left_[segment_]->synchronize();
    used_ = 0;
  }
  chunk_ = &segments_;
  begin_ = next_ = segment_ * segment_bytes_ + used_;
  end_ = begin_ + bytes;
  used_ += bytes;
}

/// A chunk that is too small stays as it is: what is held back names it.
void Staging::begin_in_arena(int64_t bytes) {
  const int64_t taken = rounded_up(bytes, alignment);
  if (arena_.empty() || arena_used_ + taken > arena_.back().pinned.bytes()) {
    constexpr int64_t least = int64_t{1} << 20;
    arena_.push_back(make_chunk(std::max(rounded_up(2 * taken, alignment), least)));
    arena_used_ = 0;
  }
  chunk_ = &arena_.back();
  begin_ = next_ = arena_used_;
  end_ = begin_ + taken;
  arena_used_ += taken;
}

int64_t Staging::take(int64_t bytes) {
  PECIA_CHECK(next_ + bytes <= end_, "{} bytes more than were announced", next_ + bytes - end_);
  return std::exchange(next_, next_ + bytes);
}

void Staging::send(device::Stream& stream) {
  const int64_t bytes = (in_step_ ? end_ : next_) - begin_;
  device_.copy(chunk_->on_device.as<std::byte>() + begin_, chunk_->pinned.as<std::byte>() + begin_,
               bytes, stream);
}

void Staging::begin_step() {
  step_done_->synchronize();
  if (arena_.size() > 1) {
    int64_t bytes = 0;
    for (const Chunk& chunk : arena_) bytes += chunk.pinned.bytes();
    arena_.clear();
    arena_.push_back(make_chunk(bytes));
  }
  arena_used_ = 0;
  sent_.clear();
  in_step_ = true;
}

void Staging::end_step(device::Stream& stream) {
  if (!in_step_) return;
  drop_step();
  step_done_->record(stream);
}

}  // namespace pecia::kernels::cuda
