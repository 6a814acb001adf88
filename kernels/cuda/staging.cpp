#include "kernels/cuda/staging.hpp"

#include <bit>

namespace pecia::kernels::cuda {

Staging::Staging(device::Device& device, int64_t segment_bytes)
    : device_(device),
      pinned_(device, device::Memory::pinned),
      on_device_(device, device::Memory::device) {
  for (auto& event : left_) event = device.make_event();
  allocate(segment_bytes);
}

void Staging::allocate(int64_t segment_bytes) {
  segment_bytes_ = segment_bytes;
  pinned_.reserve(num_segments * segment_bytes);
  on_device_.reserve(num_segments * segment_bytes);
  segment_ = 0;
  begin_ = used_ = end_ = 0;
}

void Staging::begin(int64_t bytes, device::Stream& stream) {
  if (bytes > segment_bytes_) {
    stream.synchronize();
    allocate(static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes))));
  } else if (used_ + bytes > segment_bytes_) {
    left_[segment_]->record(stream);
    segment_ = (segment_ + 1) % num_segments;
    left_[segment_]->synchronize();
    used_ = 0;
  }
  begin_ = used_;
  end_ = begin_ + bytes;
}

int64_t Staging::take(int64_t bytes) {
  PECIA_CHECK(used_ + bytes <= end_, "{} bytes more than were announced", used_ + bytes - end_);
  const int64_t at = segment_ * segment_bytes_ + used_;
  used_ += bytes;
  return at;
}

void Staging::send(device::Stream& stream) {
  const int64_t at = segment_ * segment_bytes_ + begin_;
  device_.copy(on_device_.as<std::byte>() + at, pinned_.as<std::byte>() + at, used_ - begin_,
               stream);
}

}  // namespace pecia::kernels::cuda
