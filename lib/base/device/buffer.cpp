// SPDX-License-Identifier: Apache-2.0
#include "lib/base/device/buffer.hpp"

#include "lib/base/device/host_memory.hpp"

namespace pecia::device {

Buffer::Buffer(Device* device, Memory memory, int64_t bytes)
    : data_(nullptr, Free{device, memory}), bytes_(bytes) {
  PECIA_CHECK(bytes >= 0, "a buffer of {} bytes", bytes);
  if (bytes == 0) return;
  data_.reset(device != nullptr ? device->allocate(memory, bytes) : allocate_host(bytes));
  if (memory == Memory::device) device->blocks().add(data_.get(), bytes);
}

void Buffer::Free::operator()(std::byte* data) const noexcept {
  if (memory == Memory::device) device->blocks().remove(data);
  if (device != nullptr)
    device->free(memory, data);
  else
    free_host(data);
}

void Buffer::reserve(int64_t bytes) {
  if (bytes <= bytes_) return;
  const Free where = data_.get_deleter();
  *this = Buffer(where.device, where.memory, 0);  // there may be no room for both blocks
  *this = Buffer(where.device, where.memory, bytes);
}

TensorView Buffer::tensor(DType dtype, std::initializer_list<int64_t> shape) {
  int64_t elements = 1;
  for (const int64_t extent : shape)
    if (__builtin_mul_overflow(elements, extent, &elements))
      fail<InvalidArgument>("a tensor of more than 2^63 elements");
  int64_t bytes = 0;
  if (__builtin_mul_overflow(elements, size_of(dtype), &bytes))
    fail<InvalidArgument>("a tensor of more than 2^63 bytes");
  reserve(bytes);
  return TensorView(data(), dtype, shape);
}

}  // namespace pecia::device
